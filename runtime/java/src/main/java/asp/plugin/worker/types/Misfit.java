package asp.plugin.worker.types;

/** A value that its type does not take; where it stands is put together on the way out. */
public final class Misfit extends Exception {
    private String pointer = "";

    Misfit(String message) {
        super(message, null, false, false);
    }

    /** The same, seen from the value that holds this one under `name`. */
    Misfit within(Object name) {
        pointer = "/" + name.toString().replace("~", "~0").replace("/", "~1") + pointer;
        return this;
    }

    /** A JSON Pointer (RFC 6901). */
    public String pointer() {
        return pointer;
    }

    /** Begins with the place. */
    @Override
    public String getMessage() {
        return (pointer.isEmpty() ? "/" : pointer) + ": " + super.getMessage();
    }
}
