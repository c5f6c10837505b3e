//! What the micro-benchmarks work on: a head, chats of any size, an event, as real clients and engines send them.

/// The head of a coding agent's request.
pub const HEAD: &[u8] = b"POST /v1/messages?beta=true HTTP/1.1\r\n\
    Host: gateway\r\n\
    User-Agent: claude-cli/2.1\r\n\
    Content-Type: application/json\r\n\
    x-api-key: sk-0123456789abcdef\r\n\
    anthropic-version: 2023-06-01\r\n\
    X-Claude-Code-Session-Id: 11111111-2222-3333-4444-555555555555\r\n\
    Content-Length: 126000\r\n\r\n";

/// A conversation of about `bytes`, with tools and many messages.
pub fn chat(bytes: usize) -> String {
    let tool = |n: usize| serde_json::json!({ "type": "function", "function": { "name": format!("tool_{n}"), "description": "reads a file of the project and returns its lines", "parameters": { "type": "object", "properties": { "path": { "type": "string" } } } } });
    let mut messages = vec![
        serde_json::json!({ "role": "system", "content": "You are a careful assistant. ".repeat(40) }),
    ];
    let mut size = 0;
    while size < bytes {
        let text =
            format!("Turn {}: what should be done about this line?\n", messages.len()).repeat(25);
        size += text.len() + 30;
        let role = if messages.len() % 2 == 1 { "user" } else { "assistant" };
        messages.push(serde_json::json!({ "role": role, "content": text }));
    }
    let tools: Vec<_> = (0..8).map(tool).collect();
    serde_json::json!({ "messages": messages, "model": "m", "stream": true, "tools": tools })
        .to_string()
}

/// One event of a chat stream, 200 bytes.
pub fn event() -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
        "x".repeat(60)
    )
}
