package asp.plugin.worker;

import io.grpc.Status;

/** How a call ended that did not succeed: what the caller may read, never a stack or a foreign exception's text. */
final class Failure extends Exception {
    private final String code;
    private final transient Object details;
    private final boolean yielded;

    Failure(String code, String message, Object details, boolean yielded) {
        super(message, null, false, false);
        this.code = code;
        this.details = details;
        this.yielded = yielded;
    }

    Failure(String code, String message) {
        this(code, message, null, false);
    }

    String code() {
        return code;
    }

    /** Anything Jackson turns into JSON, or null. */
    Object details() {
        return details;
    }

    boolean yielded() {
        return yielded;
    }

    /** The same for methods that answer with a gRPC status; a code of the plugin's own, which has none, starts its description. */
    Status status() {
        Status status = switch (code) {
            case "CANCELLED" -> Status.CANCELLED;
            case "INVALID_ARGUMENT" -> Status.INVALID_ARGUMENT;
            case "DEADLINE" -> Status.DEADLINE_EXCEEDED;
            case "NOT_FOUND" -> Status.NOT_FOUND;
            case "UNSUPPORTED" -> Status.UNIMPLEMENTED;
            case "INTERNAL" -> Status.INTERNAL;
            default -> Status.UNKNOWN.withDescription(code + ": " + getMessage());
        };
        return status.getDescription() == null ? status.withDescription(getMessage()) : status;
    }
}
