package asp.plugin.worker;

import asp.plugin.Caller;
import asp.plugin.Secret;
import asp.plugin.v1.GetPromptRequest;
import asp.plugin.v1.InvokeRequest;
import asp.plugin.v1.ReadResourceRequest;
import asp.plugin.v1.Resume;
import com.google.protobuf.ByteString;
import com.google.protobuf.Timestamp;
import java.time.Instant;
import java.util.Map;

/**
 * What is known of a call when it arrives, whichever method brought it.
 *
 * @param arguments JSON text; empty for none
 * @param deadline null for none; so are budget, token and resume
 */
record Request(
        String requestId,
        String taskId,
        Caller caller,
        ByteString arguments,
        Instant deadline,
        Long budget,
        Secret token,
        Map<String, String> attributes,
        Resume resume) {

    static Request of(InvokeRequest invoke) {
        return new Request(
                invoke.getRequestId(),
                invoke.getTaskId(),
                caller(invoke.getCtx()),
                invoke.getArguments().getValue(),
                invoke.hasDeadline() ? instant(invoke.getDeadline()) : null,
                invoke.hasBudget() ? invoke.getBudget() : null,
                token(invoke.getAccessToken()),
                Map.copyOf(invoke.getAttrsMap()),
                invoke.hasResume() ? invoke.getResume() : null);
    }

    static Request of(ReadResourceRequest read) {
        return plain(read.getRequestId(), read.getCtx(), read.getArguments().getValue())
                .with(
                        read.hasDeadline() ? instant(read.getDeadline()) : null,
                        read.getAccessToken(),
                        read.getAttrsMap());
    }

    static Request of(GetPromptRequest get) {
        return plain(get.getRequestId(), get.getCtx(), get.getArguments().getValue())
                .with(get.hasDeadline() ? instant(get.getDeadline()) : null, get.getAccessToken(), get.getAttrsMap());
    }

    /** A call without deadline and token, such as a list. */
    static Request plain(String requestId, asp.plugin.v1.Context context, ByteString arguments) {
        return new Request(requestId, "", caller(context), arguments, null, null, null, Map.of(), null);
    }

    private Request with(Instant end, String accessToken, Map<String, String> attrs) {
        return new Request(
                requestId, taskId, caller, arguments, end, null, token(accessToken), Map.copyOf(attrs), null);
    }

    private static Caller caller(asp.plugin.v1.Context context) {
        return new Caller(context.getTenantId(), context.getUserId(), context.getSessionId());
    }

    private static Secret token(String text) {
        return text.isEmpty() ? null : new Secret(text);
    }

    private static Instant instant(Timestamp time) {
        return Instant.ofEpochSecond(time.getSeconds(), time.getNanos());
    }
}
