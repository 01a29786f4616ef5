package asp.plugin.worker.types;

/** A type that has no JSON Schema: which, where, and what to write instead. */
public final class NoSchema extends Exception {
    NoSchema(String where, String what) {
        super(where + ": " + what, null, false, false);
    }
}
