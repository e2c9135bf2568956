import eventsourceParser from "../../node_modules/eventsource-parser/dist/index.js?raw";
import litHtml from "../../node_modules/lit-html/lit-html.js?raw";
import api from "./client/api.js?raw";
import icon from "./client/icon.svg?raw";
import index from "./client/index.html?raw";
import look from "./client/look.js?raw";
import main from "./client/main.js?raw";
import session from "./client/session.js?raw";
import signIn from "./client/sign-in.js?raw";
import style from "./client/style.css?raw";
import theme from "./client/theme.js?raw";
import tryView from "./client/try.js?raw";

/** The files of the console, by their names in the browser. They are modules of the Worker, and served as they are written. */
export const assets = {
  "index.html": index,
  "style.css": style,
  "icon.svg": icon,
  "main.js": main,
  "api.js": api,
  "look.js": look,
  "session.js": session,
  "sign-in.js": signIn,
  "theme.js": theme,
  "try.js": tryView,
  "lib/lit-html.js": litHtml,
  "lib/eventsource-parser.js": eventsourceParser,
};
