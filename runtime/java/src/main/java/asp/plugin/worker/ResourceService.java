package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.Content;
import asp.plugin.Context;
import asp.plugin.Resource;
import asp.plugin.v1.Completion;
import asp.plugin.v1.ContentChunk;
import asp.plugin.v1.ListResourcesRequest;
import asp.plugin.v1.ListResourcesResponse;
import asp.plugin.v1.ReadResourceRequest;
import asp.plugin.v1.ResourceInfo;
import asp.plugin.v1.ResourcePluginGrpc;
import asp.plugin.v1.ResourceUpdated;
import asp.plugin.v1.SubscribeRequest;
import com.google.protobuf.ByteString;
import io.grpc.stub.StreamObserver;
import java.util.List;

/** Serves the plugin's resources; contents go out in pieces. */
final class ResourceService extends ResourcePluginGrpc.ResourcePluginImplBase {
    private final Primitives primitives;

    ResourceService(Primitives primitives) {
        this.primitives = primitives;
    }

    @Override
    public void list(ListResourcesRequest request, StreamObserver<ListResourcesResponse> answer) {
        Call call = new Call(Request.plain(request.getRequestId(), request.getCtx(), ByteString.EMPTY), null);
        serve(call, answer, outbox -> {
            Serving serving = serving(request.getPrimitive());
            ListResourcesResponse.Builder list = ListResourcesResponse.newBuilder();
            for (asp.plugin.ResourceInfo info : resource(serving).list(context(serving, call))) {
                list.addResources(ResourceInfo.newBuilder()
                        .setUri(info.uri())
                        .setName(info.name())
                        .setTitle(Events.cut(info.title()))
                        .setDescription(Events.cut(info.description()))
                        .setMimeType(Events.cut(info.mimeType())));
            }
            outbox.push(list.build());
        });
    }

    @Override
    public void read(ReadResourceRequest request, StreamObserver<ContentChunk> answer) {
        Call call = new Call(Request.of(request), null);
        serve(call, answer, outbox -> {
            Serving serving = serving(request.getPrimitive());
            Resource resource = resource(serving);
            Context context = context(serving, call);
            if (!request.getCompleting().isEmpty()) {
                Completion completion = Completing.of(call.request(), request.getCompleting(),
                        (argument, value, known) -> resource.complete(argument, value, known, context));
                outbox.push(ContentChunk.newBuilder().setCompletion(completion).build());
                return;
            }
            Arguments variables = serving.arguments(call.request());
            List<Content> contents = resource.read(request.getUri(), variables, context);
            for (Content content : contents) {
                pieces(content, outbox);
            }
        });
    }

    @Override
    public void subscribe(SubscribeRequest request, StreamObserver<ResourceUpdated> answer) {
        Call call = new Call(Request.plain(request.getRequestId(), request.getCtx(), ByteString.EMPTY), null);
        serve(call, answer, outbox -> {
            ResourceUpdated updated = ResourceUpdated.newBuilder().setUri(request.getUri()).build();
            Serving serving = serving(request.getPrimitive());
            resource(serving).watch(request.getUri(), () -> outbox.push(updated), context(serving, call));
        });
    }

    private Serving serving(String primitive) throws Failure {
        Serving serving = primitives.find(primitive);
        if (serving == null) {
            throw new Failure("UNSUPPORTED", "the package does not serve " + primitive);
        }
        return serving;
    }

    private static Resource resource(Serving serving) throws Failure {
        if (serving.plugin().resource() == null) {
            throw new Failure("UNSUPPORTED", "this plugin is no resource");
        }
        return serving.plugin().resource();
    }

    private static Context context(Serving serving, Call call) {
        return new CallContext(call, serving.manifest());
    }

    /** What a method does with its stream. */
    private interface Work<M> {
        void run(Outbox<M> outbox) throws Exception;
    }

    private <M> void serve(Call call, StreamObserver<M> answer, Work<M> work) {
        Outbox<M> outbox = Unary.open(call, answer);
        Unary.start(primitives.calls(), call, outbox, () -> {
            work.run(outbox);
            return null;
        });
    }

    private static void pieces(Content content, Outbox<ContentChunk> outbox) throws InterruptedException {
        ContentChunk.Builder chunk = ContentChunk.newBuilder()
                .setUri(content.uri())
                .setMimeType(Events.cut(content.mimeType()))
                .setStarts(true);
        if (content.text() != null) {
            texts(content.text(), chunk, outbox);
            return;
        }
        byte[] bytes = content.bytes();
        int offset = 0;
        do {
            int length = Math.min(Limits.PIECE_BYTES, bytes.length - offset);
            outbox.awaitReady();
            outbox.push(chunk.setBlob(ByteString.copyFrom(bytes, offset, length)).build());
            chunk.setStarts(false);
            offset += length;
        } while (offset < bytes.length);
    }

    /** Splits between characters: each piece is a text of its own on the wire. */
    private static void texts(String text, ContentChunk.Builder chunk, Outbox<ContentChunk> outbox)
            throws InterruptedException {
        // A UTF-16 unit has at most three bytes in UTF-8.
        int units = Limits.PIECE_BYTES / 3;
        int offset = 0;
        do {
            int end = Math.min(text.length(), offset + units);
            if (end < text.length() && Character.isHighSurrogate(text.charAt(end - 1))) {
                end--;
            }
            outbox.awaitReady();
            outbox.push(chunk.setText(text.substring(offset, end)).build());
            chunk.setStarts(false);
            offset = end;
        } while (offset < text.length());
    }
}
