package asp.plugin;

import java.util.List;
import java.util.Map;

/** What a prompt answers: a description (or null) and the messages in order. */
public record PromptMessages(String description, List<Message> messages) {
    /** One message; `role` is user or assistant, `content` one MCP content block. */
    public record Message(String role, Map<String, Object> content) {}

    public PromptMessages {
        messages = List.copyOf(messages);
    }

    public static PromptMessages of(Message... messages) {
        return new PromptMessages(null, List.of(messages));
    }

    public static Message user(String text) {
        return new Message("user", Map.of("type", "text", "text", text));
    }

    public static Message assistant(String text) {
        return new Message("assistant", Map.of("type", "text", "text", text));
    }
}
