package asp.plugin.worker;

import asp.plugin.Secret;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;

/** Refuses every call, whichever method, that does not show the worker's token. */
final class Access implements ServerInterceptor {
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    private final byte[] expected;

    Access(Secret token) {
        this.expected = ("Bearer " + token.reveal()).getBytes(StandardCharsets.US_ASCII);
    }

    @Override
    public <Q, A> ServerCall.Listener<Q> interceptCall(
            ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
        String shown = headers.get(AUTHORIZATION);
        // Compared in constant time: a near miss must not answer sooner or later than a wild guess.
        if (shown != null && MessageDigest.isEqual(expected, shown.getBytes(StandardCharsets.US_ASCII))) {
            return next.startCall(call, headers);
        }
        call.close(Status.UNAUTHENTICATED.withDescription("wrong token"), new Metadata());
        return new ServerCall.Listener<>() {};
    }
}
