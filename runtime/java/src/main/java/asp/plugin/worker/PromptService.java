package asp.plugin.worker;

import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.Prompt;
import asp.plugin.PromptMessages;
import asp.plugin.v1.Completion;
import asp.plugin.v1.GetPromptRequest;
import asp.plugin.v1.GetPromptResponse;
import asp.plugin.v1.ListPromptsRequest;
import asp.plugin.v1.ListPromptsResponse;
import asp.plugin.v1.PromptInfo;
import asp.plugin.v1.PromptMessage;
import asp.plugin.v1.PromptPluginGrpc;
import io.grpc.stub.StreamObserver;

/** Serves the package's prompts. */
final class PromptService extends PromptPluginGrpc.PromptPluginImplBase {
    private final Primitives primitives;

    PromptService(Primitives primitives) {
        this.primitives = primitives;
    }

    /** A prompt is known by the id of its primitive. */
    @Override
    public void list(ListPromptsRequest request, StreamObserver<ListPromptsResponse> answer) {
        ListPromptsResponse.Builder list = ListPromptsResponse.newBuilder();
        for (Serving serving : primitives.all()) {
            if (serving.plugin().prompt() != null) {
                list.addPrompts(PromptInfo.newBuilder().setName(serving.manifest().id()));
            }
        }
        answer.onNext(list.build());
        answer.onCompleted();
    }

    @Override
    public void get(GetPromptRequest request, StreamObserver<GetPromptResponse> answer) {
        Call call = new Call(Request.of(request), null);
        Outbox<GetPromptResponse> outbox = Unary.open(call, answer);
        Unary.start(primitives.calls(), call, outbox, () -> {
            Serving serving = primitives.find(request.getName());
            Prompt prompt = serving == null ? null : serving.plugin().prompt();
            if (prompt == null) {
                throw new Failure("UNSUPPORTED", "this plugin is no prompt");
            }
            Context context = new CallContext(call, serving.manifest());
            if (!request.getCompleting().isEmpty()) {
                Completion completion = Completing.of(call.request(), request.getCompleting(),
                        (argument, value, known) -> prompt.complete(argument, value, known, context));
                outbox.push(GetPromptResponse.newBuilder().setCompletion(completion).build());
                return null;
            }
            outbox.push(response(prompt.get(serving.arguments(call.request()), context)));
            return null;
        });
    }

    private static GetPromptResponse response(PromptMessages made) throws Failure {
        GetPromptResponse.Builder response =
                GetPromptResponse.newBuilder().setDescription(Events.cut(made.description()));
        for (PromptMessages.Message message : made.messages()) {
            response.addMessages(PromptMessage.newBuilder()
                    .setRole(message.role())
                    .setContent(Events.json(Json.bytes(message.content()))));
        }
        if (response.build().getSerializedSize() > Limits.PAYLOAD_BYTES) {
            throw new Failure("INVALID_OUTPUT", "the prompt is larger than " + Limits.PAYLOAD_BYTES + " bytes");
        }
        return response.build();
    }
}
