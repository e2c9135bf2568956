// Reads a compose file with the library that docker compose reads it with: `compose FILE ENV_FILE`. Prints what it comes
// to, or why it is not valid.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:2], cli.WithEnvFiles(os.Args[2:]...), cli.WithDotEnv)
	check(err)
	project, err := options.LoadProject(context.Background())
	check(err)
	text, err := project.MarshalYAML()
	check(err)
	fmt.Print(string(text))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
