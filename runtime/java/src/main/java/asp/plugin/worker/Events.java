package asp.plugin.worker;

import asp.plugin.Json;
import asp.plugin.LogLevel;
import asp.plugin.Result;
import asp.plugin.v1.Completed;
import asp.plugin.v1.ElicitationCompleted;
import asp.plugin.v1.ElicitationField;
import asp.plugin.v1.ElicitationRequested;
import asp.plugin.v1.Failed;
import asp.plugin.v1.LogLine;
import asp.plugin.v1.Progress;
import asp.plugin.v1.ResourceChanged;
import asp.plugin.v1.ResultChunk;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.StatusUpdated;
import com.google.protobuf.ByteString;
import com.google.protobuf.Timestamp;
import com.google.protobuf.UnsafeByteOperations;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Locale;
import java.util.Map;
import java.util.logging.Level;

/** Makes the messages of a call. Texts are cut to their bounds; payloads past theirs are the caller's to refuse. */
final class Events {
    private Events() {}

    static ServerMessage progress(Request request, double percent, String message, Map<String, Double> gauges) {
        return ServerMessage.newBuilder()
                .setProgress(Progress.newBuilder()
                        .setRequestId(request.requestId())
                        .setTaskId(request.taskId())
                        .setPercent(percent)
                        .setMessage(cut(message))
                        .putAllGauges(gauges)
                        .setAt(now()))
                .build();
    }

    static ServerMessage text(Request request, String text) {
        return ServerMessage.newBuilder()
                .setChunk(ResultChunk.newBuilder()
                        .setRequestId(request.requestId())
                        .setTaskId(request.taskId())
                        .setText(text))
                .build();
    }

    static ServerMessage structured(Request request, byte[] json) {
        return ServerMessage.newBuilder()
                .setChunk(ResultChunk.newBuilder()
                        .setRequestId(request.requestId())
                        .setTaskId(request.taskId())
                        .setStructured(json(json)))
                .build();
    }

    static ServerMessage log(Request request, LogLine.Level level, String message) {
        return log(request, level, "", message);
    }

    /** Returns a line at one of MCP's levels. */
    static ServerMessage log(Request request, LogLevel level, String message) {
        return log(request, level(level.nearest()), level.name().toLowerCase(Locale.ROOT), message);
    }

    private static ServerMessage log(Request request, LogLine.Level level, String severity, String message) {
        return ServerMessage.newBuilder()
                .setLog(LogLine.newBuilder()
                        .setRequestId(request.requestId())
                        .setTaskId(request.taskId())
                        .setLevel(level)
                        .setSeverity(severity)
                        .setMessage(cut(message))
                        .setAt(now()))
                .build();
    }

    static ServerMessage status(Request request, String phase, byte[] metadata) {
        return ServerMessage.newBuilder()
                .setStatus(StatusUpdated.newBuilder()
                        .setRequestId(request.requestId())
                        .setTaskId(request.taskId())
                        .setStatus(StatusUpdated.Status.WORKING)
                        .setPhase(cut(phase))
                        .setMetadata(json(metadata)))
                .build();
    }

    static ServerMessage question(Request request, String id, asp.plugin.Question question) {
        ElicitationRequested.Builder asked = ElicitationRequested.newBuilder()
                .setRequestId(request.requestId())
                .setTaskId(request.taskId())
                .setElicitationId(id)
                .setTitle(cut(question.title()))
                .setMessage(cut(question.message()));
        for (asp.plugin.Question.Field field : question.fields()) {
            asked.addFields(ElicitationField.newBuilder()
                    .setName(field.name())
                    .setType(field.type())
                    .setRequired(field.required())
                    .setLabel(cut(field.label())));
        }
        if (question.url() != null) {
            asked.setUrl(question.url());
        }
        if (question.schema() != null) {
            asked.setRequestedSchema(json(Json.bytes(question.schema())));
        }
        return ServerMessage.newBuilder().setElicitation(asked).build();
    }

    static ServerMessage visited(Request request, String id) {
        return ServerMessage.newBuilder()
                .setElicitationCompleted(ElicitationCompleted.newBuilder()
                        .setRequestId(request.requestId())
                        .setElicitationId(id))
                .build();
    }

    static ServerMessage changed(Request request, String uri) {
        return ServerMessage.newBuilder()
                .setResourceChanged(
                        ResourceChanged.newBuilder().setRequestId(request.requestId()).setUri(uri))
                .build();
    }

    /** @param output JSON text, or null for none */
    static ServerMessage completed(Request request, byte[] output, Result result) {
        Completed.Builder completed = Completed.newBuilder()
                .setRequestId(request.requestId())
                .setTaskId(request.taskId())
                .setIsError(result.isError());
        if (output != null) {
            completed.setOutput(json(output));
        }
        if (!result.content().isEmpty()) {
            completed.setContent(json(Json.bytes(result.content())));
        }
        return ServerMessage.newBuilder().setCompleted(completed).build();
    }

    static ServerMessage failed(Request request, Failure failure) {
        Failed.Builder failed = Failed.newBuilder()
                .setRequestId(request.requestId())
                .setTaskId(request.taskId())
                .setCode(failure.code())
                .setMessage(cut(failure.getMessage()))
                .setYielded(failure.yielded());
        byte[] details = details(failure);
        if (details != null) {
            failed.setDetails(json(details));
        }
        return ServerMessage.newBuilder().setFailed(failed).build();
    }

    static asp.plugin.v1.Json json(byte[] text) {
        // The array is the shim's own and is not changed afterwards.
        return asp.plugin.v1.Json.newBuilder().setValue(UnsafeByteOperations.unsafeWrap(text)).build();
    }

    static LogLine.Level level(System.Logger.Level level) {
        return switch (level) {
            case ALL, TRACE -> LogLine.Level.TRACE;
            case DEBUG -> LogLine.Level.DEBUG;
            case INFO -> LogLine.Level.INFO;
            case WARNING -> LogLine.Level.WARN;
            case ERROR, OFF -> LogLine.Level.ERROR;
        };
    }

    static LogLine.Level level(Level level) {
        int value = level.intValue();
        if (value >= Level.SEVERE.intValue()) {
            return LogLine.Level.ERROR;
        }
        if (value >= Level.WARNING.intValue()) {
            return LogLine.Level.WARN;
        }
        if (value >= Level.CONFIG.intValue()) {
            return LogLine.Level.INFO;
        }
        return value >= Level.FINE.intValue() ? LogLine.Level.DEBUG : LogLine.Level.TRACE;
    }

    /** Cuts a text to the bound of a log line, between two characters; null becomes empty. */
    static String cut(String text) {
        if (text == null) {
            return "";
        }
        // A UTF-16 unit has at most three bytes in UTF-8.
        if (text.length() * 3L <= Limits.LOG_BYTES) {
            return text;
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        if (bytes.length <= Limits.LOG_BYTES) {
            return text;
        }
        int end = Limits.LOG_BYTES;
        while ((bytes[end] & 0xc0) == 0x80) {
            end--;
        }
        return ByteString.copyFrom(bytes, 0, end).toStringUtf8();
    }

    /** Details are the author's: what cannot be written or is too large is left out, and the failure still told. */
    private static byte[] details(Failure failure) {
        if (failure.details() == null) {
            return null;
        }
        try {
            byte[] json = Json.bytes(failure.details());
            return json.length <= Limits.PIECE_BYTES ? json : null;
        } catch (IllegalArgumentException unwritable) {
            return null;
        }
    }

    private static Timestamp now() {
        Instant now = Instant.now();
        return Timestamp.newBuilder().setSeconds(now.getEpochSecond()).setNanos(now.getNano()).build();
    }
}
