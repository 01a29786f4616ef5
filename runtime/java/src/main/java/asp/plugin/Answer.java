package asp.plugin;

/** A user's answer; `fields` is empty unless the user accepted. */
public record Answer(Action action, Arguments fields) {
    /** MCP's three ways out of a form. */
    public enum Action {
        ACCEPT,
        DECLINE,
        CANCEL
    }

    public boolean accepted() {
        return action == Action.ACCEPT;
    }
}
