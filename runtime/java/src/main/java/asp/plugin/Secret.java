package asp.plugin;

/** A token or a named secret, which prints as {@code ***}: it can be sent, and does not slip into logs. */
public final class Secret {
    private final String text;

    public Secret(String text) {
        this.text = text;
    }

    /** Returns the text itself, to be sent and not kept. */
    public String reveal() {
        return text;
    }

    @Override
    public String toString() {
        return "***";
    }
}
