package asp.plugin.worker;

/** The bounds of the protocol (plugin.proto) and the worker's own. */
final class Limits {
    /** Bytes of one message on the wire. */
    static final int MESSAGE_BYTES = 4 << 20;

    /** Bytes of a message's payload: leaves room for ids and framing in a message. */
    static final int PAYLOAD_BYTES = MESSAGE_BYTES - (64 << 10);

    /** Bytes of a checkpoint. */
    static final int CAPSULE_BYTES = 64 << 10;

    /** Bytes of a stored value, as JSON text. */
    static final int STORED_BYTES = 64 << 10;

    /** Bytes of one log line, in UTF-8. */
    static final int LOG_BYTES = 16 << 10;

    /** Bytes of one piece of an artifact or a resource. */
    static final int PIECE_BYTES = 64 << 10;

    /** Open questions and delegations of one call. */
    static final int OPEN_QUESTIONS = 16;

    /** Requests of one call for the plugin's storage that are not answered. */
    static final int STORAGE_REQUESTS = 16;

    /** Calls at once in one worker. The pool's `concurrency` is far below; this one holds when a peer ignores it. */
    static final int CALLS = 256;

    private Limits() {}
}
