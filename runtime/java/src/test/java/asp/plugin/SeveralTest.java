package asp.plugin;

import static asp.plugin.CallTest.failed;
import static asp.plugin.CallTest.last;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.CancelRequest;
import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.GetPromptRequest;
import asp.plugin.v1.ListResourcesRequest;
import asp.plugin.v1.PromptPluginGrpc;
import asp.plugin.v1.ResourcePluginGrpc;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.ToolPluginGrpc;
import com.fasterxml.jackson.databind.JsonNode;
import com.google.protobuf.Empty;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** A package with several primitives: each call reaches its own class, with its own schemas and questions. */
class SeveralTest {
    @Test
    void eachCallReachesTheClassOfItsPrimitiveAndAllShareOneProcess() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(weather()).greet()) {
            invoke(worker, "ask", "sweep", Map.of());
            ServerMessage asked = worker.next(ServerMessage::hasElicitation);
            assertEquals("region", asked.getElicitation().getElicitationId());
            worker.send(ClientMessage.newBuilder()
                    .setCancel(CancelRequest.newBuilder().setRequestId("ask"))
                    .build());
            worker.next(WorkerProcess::isEnd);
            invoke(worker, "first", "today", Map.of("city", "Oslo"));
            JsonNode output = WorkerProcess.tree(last(worker.end()).getCompleted().getOutput());
            assertEquals("Oslo", output.get("city").asText());
            assertEquals(2, output.get("calls").asInt(), "the call of the other tool was counted too");
            invoke(worker, "wrong", "today", Map.of());
            assertEquals("INVALID_ARGUMENT", failed(worker.end()).getCode());
        }
    }

    @Test
    void aPrimitiveThatThePackageDoesNotServeIsRefused() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(weather()).greet()) {
            invoke(worker, "a", "radar", Map.of());
            assertEquals("the package does not serve radar", failed(worker.end()).getMessage());
            var resources = ResourcePluginGrpc.newBlockingStub(worker.channel(WorkerProcess.TOKEN));
            StatusRuntimeException none = assertThrows(
                    StatusRuntimeException.class, () -> resources.list(ListResourcesRequest.getDefaultInstance()));
            assertEquals(Status.Code.UNIMPLEMENTED, none.getStatus().getCode());
        }
    }

    @Test
    void resourcesAndPromptsOfOnePackageAreToldApartAndResumingIsSaidOfThoseThatDo() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(weather())) {
            var channel = worker.channel(WorkerProcess.TOKEN);
            var listed = ResourcePluginGrpc.newBlockingStub(channel)
                    .list(ListResourcesRequest.newBuilder().setPrimitive("pages").build());
            assertEquals("pages://text", listed.getResources(0).getUri());
            var got = PromptPluginGrpc.newBlockingStub(channel)
                    .get(GetPromptRequest.newBuilder()
                            .setName("greeting")
                            .setArguments(WorkerProcess.json(Map.of("name", "Ada")))
                            .build());
            assertEquals("Greet Ada", WorkerProcess.tree(got.getMessages(0).getContent()).get("text").asText());
            var health = ToolPluginGrpc.newBlockingStub(channel).health(Empty.getDefaultInstance());
            assertEquals("of sweep", health.getCapsOrThrow("checkpoint"));
        }
    }

    @Test
    void aClassThatIsNotInThePackageIsNamed() throws Exception {
        Map<String, Object> manifest = weather();
        manifest.put("primitives", Map.of("radar", part("tool", "asp.plugin.fixtures.Weather:Radar")));
        try (WorkerProcess worker = WorkerProcess.launch(manifest, Map.of(), WorkerProcess.TOKEN)) {
            assertEquals(78, worker.exitCode());
            assertTrue(
                    worker.errors().contains("there is no class asp.plugin.fixtures.Weather$Radar"), worker.errors());
        }
    }

    private static void invoke(WorkerProcess worker, String id, String primitive, Object arguments) {
        worker.invoke(WorkerProcess.invocation(id, arguments).setPrimitive(primitive));
    }

    private static Map<String, Object> weather() {
        Map<String, Object> manifest = Manifests.of("", "");
        manifest.keySet().removeAll(List.of("kind", "entrypoint"));
        Map<String, Object> today = part("tool", "asp.plugin.fixtures.Weather:Today");
        today.put("inputSchema", Map.of("type", "object", "required", List.of("city")));
        Map<String, Object> sweep = part("task", "asp.plugin.fixtures.Weather:Sweep");
        sweep.put("elicitations", List.of("region"));
        manifest.put(
                "primitives",
                Map.of(
                        "today", today,
                        "sweep", sweep,
                        "pages", part("resource_template", "asp.plugin.fixtures.Pages"),
                        "greeting", part("prompt", "asp.plugin.fixtures.Greeting")));
        return manifest;
    }

    private static Map<String, Object> part(String kind, String entrypoint) {
        return new HashMap<>(Map.of("version", "1.0.0", "kind", kind, "entrypoint", entrypoint));
    }
}
