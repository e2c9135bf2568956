/** `npm run reference` writes this file from the API's description: the types that `src` imports, and those in them. */
export interface components {
    schemas: {
        ToolChoice: ("none" | "auto" | "required") | components["schemas"]["NamedToolChoice"];
        NamedToolChoice: components["schemas"]["FunctionChoice"] | components["schemas"]["CustomChoice"] | components["schemas"]["ToolSearchChoice"] | components["schemas"]["McpChoice"] | components["schemas"]["CodeInterpreterChoice"] | components["schemas"]["AllowedToolsChoice"];
        FunctionChoice: {
            type: "function";
            name: string;
            namespace?: string;
        };
        CustomChoice: {
            type: "custom";
            name: string;
            namespace?: string;
        };
        ToolSearchChoice: {
            type: "tool_search" | "local_shell" | "shell" | "apply_patch" | "programmatic_tool_calling";
        };
        McpChoice: {
            type: "mcp";
            server_label: string;
            name?: string | null;
        };
        CodeInterpreterChoice: {
            type: "code_interpreter" | "container" | "file_search" | "image_generation" | "web_search" | "web_search_2025_08_26" | "web_search_preview" | "web_search_preview_2025_03_11";
        };
        AllowedToolsChoice: {
            type: "allowed_tools";
            mode: "auto" | "required";
            tools: (components["schemas"]["FunctionChoice"] | components["schemas"]["CustomChoice"] | components["schemas"]["ToolSearchChoice"] | components["schemas"]["McpChoice"] | components["schemas"]["CodeInterpreterChoice"] | {
                type: "namespace";
                name: string;
            })[];
        };
        TextFormat: components["schemas"]["TextOutputFormat"] | components["schemas"]["JsonObjectOutputFormat"] | components["schemas"]["JsonSchemaOutputFormat"];
        TextOutputFormat: {
            type: "text";
        };
        JsonObjectOutputFormat: {
            type: "json_object";
        };
        JsonSchemaOutputFormat: {
            type: "json_schema";
            name: string;
            schema: {
                [key: string]: unknown;
            };
            description?: string | null;
            strict?: boolean | null;
        };
        ReasoningEffort: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
        Limits: {
            models?: string[] | null;
            requests_per_minute?: number | null;
            reads_per_minute?: number | null;
            tokens_per_minute?: number | null;
            max_concurrent_requests?: number | null;
            max_background_runs?: number | null;
            budget?: {
                tokens?: number | null;
                usd?: number | null;
                window?: "hour" | "day" | "week" | "month" | "total";
            } | null;
            end_user?: {
                requests_per_minute?: number | null;
                tokens_per_minute?: number | null;
            } | null;
            stored_bytes?: number | null;
            stored_responses?: number | null;
            stored_conversations?: number | null;
            stored_files?: number | null;
            stored_file_bytes?: number | null;
            max_output_tokens?: number | null;
            hosted_tools?: ("mcp" | "web_search" | "code_interpreter" | "file_search" | "image_generation" | "container" | "multi_agent")[] | null;
            mcp_hosts?: string[] | null;
            vllm_extras?: ("priority" | "kv_transfer_params" | "chat_template_kwargs" | "mm_processor_kwargs" | "vllm_xargs")[] | null;
            force_store_false?: boolean | null;
            repetition_guard?: "off" | "thoughts" | "on" | null;
            weight?: number | null;
            tier?: string | null;
            log_content?: boolean | null;
            track_homes?: boolean | null;
        };
        Usage: {
            input_tokens: number;
            input_tokens_details: {
                cached_tokens: number;
                cache_write_tokens: number;
            };
            output_tokens: number;
            output_tokens_details: {
                reasoning_tokens: number;
                tool_output_tokens?: number;
            };
            total_tokens: number;
            input_tokens_per_turn?: number[];
            cached_tokens_per_turn?: number[];
            output_tokens_per_turn?: number[];
            tool_output_tokens_per_turn?: number[];
        };
        ResponseTiming: {
            accepted_at: number;
            waited_ms: number;
            queued_ms: number;
            rounds: {
                server: string | null;
                model: string;
                purpose: "round" | "take_up" | "summary";
                began_ms: number;
                queued_ms: number;
                first_token_ms: number | null;
                ended_ms: number;
                attempts: number;
                input_tokens: number;
                cached_tokens: number;
                output_tokens: number;
                error: string | null;
            }[];
            items: {
                id: string;
                began_ms: number;
                ended_ms: number;
            }[];
            settled_ms: number;
            rounds_omitted?: number;
            items_omitted?: number;
        };
        File: {
            id: string;
            object: "file";
            bytes: number;
            created_at: number;
            expires_at?: number;
            filename: string;
            purpose: "assistants" | "batch" | "fine-tune" | "vision" | "user_data" | "evals" | "assistants_output" | "batch_output";
            status: "processed";
        };
        VectorStore: {
            id: string;
            object: "vector_store";
            created_at: number;
            name: string;
            description: string | null;
            status: "expired" | "in_progress" | "completed";
            usage_bytes: number;
            file_counts: {
                in_progress: number;
                completed: number;
                failed: number;
                cancelled: number;
                total: number;
            };
            last_active_at: number | null;
            metadata: {
                [key: string]: string;
            } | null;
            expires_after?: {
                anchor: "last_active_at";
                days: number;
            };
            expires_at: number | null;
            embedding_model: string | null;
            embedding_dimensions: number | null;
        };
        VectorStoreSearchResults: {
            object: "vector_store.search_results.page";
            search_query: string[];
            data: {
                file_id: string;
                filename: string;
                score: number;
                attributes: {
                    [key: string]: string | number | boolean;
                } | null;
                content: {
                    type: "text";
                    text: string;
                }[];
                explanation?: {
                    fusion_score: number;
                    page: number | null;
                    last_page: number | null;
                    queries: {
                        embedding_rank: number | null;
                        text_rank: number | null;
                        words: string[];
                    }[];
                };
            }[];
            has_more: boolean;
            next_page: string | null;
        };
        VectorStoreFile: {
            id: string;
            object: "vector_store.file";
            vector_store_id: string;
            created_at: number;
            status: "in_progress" | "completed" | "cancelled" | "failed";
            last_error: {
                code: "server_error" | "unsupported_file" | "invalid_file";
                message: string;
            } | null;
            usage_bytes: number;
            attributes: {
                [key: string]: string | number | boolean;
            } | null;
            chunking_strategy: {
                type: "static";
                static: {
                    max_chunk_size_tokens: number;
                    chunk_overlap_tokens: number;
                };
            };
        };
        ApiKey: {
            object: "api_key";
            id: string;
            tenant: string;
            name: string;
            redacted_value: string;
            created_at: number | null;
            expires_at: number | null;
            disabled: boolean;
            limits: components["schemas"]["Limits"] | null;
            source: "admin_api" | "configuration";
        };
        Configuration: {
            object: "configuration";
            version: number;
            values: {
                [key: string]: unknown;
            };
            sources: {
                [key: string]: ("environment" | "file" | "administrators")[];
            };
            overrides: {
                [key: string]: unknown;
            };
        };
        AuditLog: {
            object: "list";
            data: ({
                id: string;
                object: "organization.audit_log";
                type: "api_key.created" | "api_key.updated" | "api_key.rotated" | "api_key.deleted" | "rate_limit.updated" | "rate_limit.deleted" | "configuration.updated" | "response.cancelled" | "response.deleted" | "conversation.deleted" | "file.deleted" | "vector_store.deleted" | "batch.created" | "batch.cancelled" | "webhook_endpoint.created" | "webhook_endpoint.updated" | "webhook_endpoint.secret_rotated" | "webhook_endpoint.deleted" | "tenant.exported" | "tenant.imported" | "tenant.erased";
                effective_at: number;
                actor: {
                    type: "api_key";
                    api_key: {
                        id: string;
                    };
                } | {
                    type: "session";
                    session: {
                        user: {
                            id: string;
                        };
                    };
                };
                project: {
                    id: string;
                };
            } & {
                [key: string]: unknown;
            })[];
            first_id: string | null;
            last_id: string | null;
            has_more: boolean;
        };
        ResponsePrompt: {
            object: "response.prompt";
            server: string | null;
            model: string;
            messages: {
                [key: string]: unknown;
            }[] | null;
            tools: {
                [key: string]: unknown;
            }[];
            parameters: {
                temperature: number;
                top_p: number;
                presence_penalty: number;
                frequency_penalty: number;
                top_logprobs: number;
                max_output_tokens: number | null;
                max_tool_calls: number | null;
                parallel_tool_calls: boolean;
                tool_choice: components["schemas"]["ToolChoice"];
                text: {
                    format: components["schemas"]["TextFormat"];
                    verbosity: "low" | "medium" | "high";
                };
                reasoning: {
                    effort: components["schemas"]["ReasoningEffort"] | null;
                    summary: "auto" | "concise" | "detailed" | null;
                    context?: "auto" | "current_turn" | "all_turns";
                } | null;
                truncation: "auto" | "disabled";
                chat_template_kwargs?: {
                    [key: string]: unknown;
                };
            };
            rendered: string | null;
            rendered_by: string | null;
            raw: boolean;
        };
        ListedResponse: {
            id: string;
            created_at: number;
            completed_at: number | null;
            status: "completed" | "failed" | "in_progress" | "cancelled" | "queued" | "incomplete";
            background: boolean;
            model: string;
            previous_response_id: string | null;
            conversation: {
                id: string;
            } | null;
            metadata: {
                [key: string]: string;
            };
            usage: components["schemas"]["Usage"] | null;
            error: {
                code: string;
                message: string;
            } | null;
            incomplete_details: {
                reason: "max_output_tokens" | "content_filter" | "steered";
            } | null;
            object: "response.summary";
            duration_ms: number | null;
            server: string | null;
            waited_ms: number | null;
            first_token_ms: number | null;
            attempts: number | null;
            cost_usd: number | null;
            input: {
                type: string;
                text: string;
            } | null;
            output: {
                type: string;
                text: string;
            } | null;
            tree?: {
                root_id: string;
                input: {
                    type: string;
                    text: string;
                } | null;
                metadata: {
                    [key: string]: string;
                };
                created_at: number;
                responses: number;
            };
        };
        Run: {
            object: "run";
            id: string;
            tenant: string;
            status: "in_progress" | "unknown";
            model: string | null;
            created_at: number | null;
            background: boolean | null;
            foreground?: boolean;
            server: string | null;
            events: number | null;
        };
        RequestSummary: {
            object: "request.summary";
            id: string;
            created_at: number;
            tenant: string;
            api_key_id: string | null;
            endpoint: string;
            transport: "http" | "sse" | "websocket" | "background" | "batch";
            http_status: number;
            status: "completed" | "failed" | "incomplete" | "cancelled" | "refused";
            response_id: string | null;
            model: string | null;
            server: string | null;
            duration_ms: number;
            first_token_ms: number | null;
            waited_ms: number;
            queued_ms: number;
            attempts: number;
            usage: {
                input_tokens: number;
                cached_tokens: number;
                output_tokens: number;
                reasoning_tokens: number;
            } | null;
            cost_usd: number | null;
            error: {
                code: string;
                message: string;
                upstream: string | null;
            } | null;
        };
        ResponseDetails: {
            id: string;
            created_at: number;
            status: "completed" | "failed" | "in_progress" | "cancelled" | "queued" | "incomplete";
            model: string;
            error: {
                code: string;
                message: string;
            } | null;
            object: "response.details";
            tenant: string;
            timing: components["schemas"]["ResponseTiming"] | null;
            upstream_error: string | null;
        };
        RequestList: {
            object: "list";
            data: components["schemas"]["RequestSummary"][];
            first_id: string | null;
            last_id: string | null;
            has_more: boolean;
        };
        Overview: {
            object: "list";
            data: {
                object: "overview.bucket";
                start_time: number;
                end_time: number;
                requests: number;
                errors: number;
                by_status: {
                    [key: string]: number;
                };
                input_tokens: number;
                output_tokens: number;
                p50_ms: number | null;
                p95_ms: number | null;
                p50_first_token_ms: number | null;
                p95_first_token_ms: number | null;
                output_tokens_per_second: number | null;
                most_in_flight: number | null;
                most_waiting: number | null;
                servers_down: string[];
                least_free_disk_bytes: number | null;
            }[];
            now: {
                in_flight: number;
                waiting: number;
                servers: {
                    name: string;
                    status: "ok" | "unreachable" | "ejected" | "draining";
                    in_flight: number;
                    waiting: number;
                    load: number | null;
                }[];
                disk: {
                    free_bytes: number | null;
                    low: boolean;
                } | null;
            };
        };
        Decision: {
            model: string;
            answers: ({
                type: "predicate";
                name: string | null;
                probability: number;
            } | {
                type: "choice";
                name: string | null;
                choice: string | boolean;
                confidence: number;
                probabilities: {
                    value: string | boolean;
                    probability: number;
                }[];
            } | {
                type: "score";
                name: string | null;
                score: number;
                confidence: number;
                probabilities: {
                    label: string;
                    value: number;
                    probability: number;
                }[];
            } | {
                type: "refusal";
                name: string | null;
            })[];
            usage: {
                input_tokens: number;
                input_tokens_details: {
                    cache_write_tokens: number;
                    cached_tokens: number;
                };
                output_tokens: number;
                output_tokens_details: {
                    reasoning_tokens: number;
                };
                total_tokens: number;
            };
        };
        Moderation: {
            id: string;
            model: string;
            results: {
                flagged: boolean;
                categories: {
                    [key: string]: boolean;
                };
                category_scores: {
                    [key: string]: number;
                };
                category_applied_input_types: {
                    [key: string]: ("text" | "image")[];
                };
            }[];
        };
        Batch: {
            id: string;
            object: "batch";
            endpoint: "/v1/responses" | "/v1/chat/completions" | "/v1/embeddings" | "/v1/completions" | "/v1/moderations";
            input_file_id: string;
            completion_window: string;
            status: "validating" | "failed" | "in_progress" | "finalizing" | "completed" | "expired" | "cancelling" | "cancelled";
            created_at: number;
            expires_at: number;
            in_progress_at?: number;
            finalizing_at?: number;
            completed_at?: number;
            failed_at?: number;
            expired_at?: number;
            cancelling_at?: number;
            cancelled_at?: number;
            output_file_id?: string;
            error_file_id?: string;
            errors?: {
                object: "list";
                data: {
                    code: string;
                    message: string;
                    param: string | null;
                    line: number | null;
                }[];
            };
            model?: string;
            request_counts: {
                total: number;
                completed: number;
                failed: number;
            };
            usage: {
                input_tokens: number;
                input_tokens_details: {
                    cached_tokens: number;
                };
                output_tokens: number;
                output_tokens_details: {
                    reasoning_tokens: number;
                };
                total_tokens: number;
            };
            metadata: {
                [key: string]: string;
            } | null;
        };
        WebhookEndpoint: {
            id: string;
            object: "webhook_endpoint";
            name: string;
            url: string;
            event_types: string[];
            created_at: number;
            updated_at: number;
            signing_secret_hint: string;
            signing_secret?: string;
        };
        WebhookDeliveryList: {
            object: "list";
            data: {
                id: string;
                object: "webhook_endpoint.delivery";
                event: {
                    id: string;
                    type: string;
                    created_at: number;
                    data: {
                        id: string;
                    };
                };
                status: "pending" | "delivered" | "failed";
                attempts: number;
                status_code: number | null;
                next_attempt_at: number | null;
                last_attempt_at: number | null;
            }[];
            first_id: string | null;
            last_id: string | null;
            has_more: boolean;
        };
        UpstreamHealth: {
            latency_ms: number;
            models?: string[];
            error?: {
                code: string;
                message: string;
            };
            failing_since?: string;
            down_since: string | null;
            separates_tenants: boolean | null;
            dialect?: "vllm" | "llamacpp" | "sglang" | "ollama" | "openai" | null;
            missing_parsers?: {
                model: string;
                parsers: ("reasoning" | "tool_calls")[];
                flags: string[];
            }[];
            status: "ok" | "degraded" | "failing" | "unreachable";
            recovery: {
                background_ms: number;
                foreground_ms: number;
            };
            servers?: {
                latency_ms: number;
                models?: string[];
                error?: {
                    code: string;
                    message: string;
                };
                failing_since?: string;
                down_since: string | null;
                separates_tenants: boolean | null;
                dialect?: "vllm" | "llamacpp" | "sglang" | "ollama" | "openai" | null;
                missing_parsers?: {
                    model: string;
                    parsers: ("reasoning" | "tool_calls")[];
                    flags: string[];
                }[];
                status: "ok" | "failing" | "unreachable";
                name: string;
                draining: boolean;
                weight: number;
                ejected: boolean;
                board?: {
                    down: boolean;
                    load: number | null;
                };
            }[];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type ToolChoice = components['schemas']['ToolChoice'];
export type NamedToolChoice = components['schemas']['NamedToolChoice'];
export type FunctionChoice = components['schemas']['FunctionChoice'];
export type CustomChoice = components['schemas']['CustomChoice'];
export type ToolSearchChoice = components['schemas']['ToolSearchChoice'];
export type McpChoice = components['schemas']['McpChoice'];
export type CodeInterpreterChoice = components['schemas']['CodeInterpreterChoice'];
export type AllowedToolsChoice = components['schemas']['AllowedToolsChoice'];
export type TextFormat = components['schemas']['TextFormat'];
export type TextOutputFormat = components['schemas']['TextOutputFormat'];
export type JsonObjectOutputFormat = components['schemas']['JsonObjectOutputFormat'];
export type JsonSchemaOutputFormat = components['schemas']['JsonSchemaOutputFormat'];
export type ReasoningEffort = components['schemas']['ReasoningEffort'];
export type Limits = components['schemas']['Limits'];
export type Usage = components['schemas']['Usage'];
export type ResponseTiming = components['schemas']['ResponseTiming'];
export type File = components['schemas']['File'];
export type VectorStore = components['schemas']['VectorStore'];
export type VectorStoreSearchResults = components['schemas']['VectorStoreSearchResults'];
export type VectorStoreFile = components['schemas']['VectorStoreFile'];
export type ApiKey = components['schemas']['ApiKey'];
export type Configuration = components['schemas']['Configuration'];
export type AuditLog = components['schemas']['AuditLog'];
export type ResponsePrompt = components['schemas']['ResponsePrompt'];
export type ListedResponse = components['schemas']['ListedResponse'];
export type Run = components['schemas']['Run'];
export type RequestSummary = components['schemas']['RequestSummary'];
export type ResponseDetails = components['schemas']['ResponseDetails'];
export type RequestList = components['schemas']['RequestList'];
export type Overview = components['schemas']['Overview'];
export type Decision = components['schemas']['Decision'];
export type Moderation = components['schemas']['Moderation'];
export type Batch = components['schemas']['Batch'];
export type WebhookEndpoint = components['schemas']['WebhookEndpoint'];
export type WebhookDeliveryList = components['schemas']['WebhookDeliveryList'];
export type UpstreamHealth = components['schemas']['UpstreamHealth'];
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
