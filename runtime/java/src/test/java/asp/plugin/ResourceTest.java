package asp.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.ContentChunk;
import asp.plugin.v1.GetPromptRequest;
import asp.plugin.v1.InvokeRequest;
import asp.plugin.v1.ListPromptsRequest;
import asp.plugin.v1.ListResourcesRequest;
import asp.plugin.v1.PromptPluginGrpc;
import asp.plugin.v1.ReadResourceRequest;
import asp.plugin.v1.ResourcePluginGrpc;
import asp.plugin.v1.SubscribeRequest;
import com.google.protobuf.Timestamp;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Resources and prompts, which have methods of their own. */
class ResourceTest {
    private static WorkerProcess pages;

    @BeforeAll
    static void start() throws Exception {
        pages = WorkerProcess.start(Manifests.pages());
    }

    @AfterAll
    static void stop() throws Exception {
        pages.close();
    }

    @Test
    void aTextIsSplitBetweenCharactersAndJoinsAgain() throws Exception {
        List<ContentChunk> chunks = read(pages, "text");
        assertTrue(chunks.size() > 1);
        StringBuilder text = new StringBuilder();
        for (ContentChunk chunk : chunks) {
            assertTrue(chunk.getTextBytes().size() <= 65_536);
            assertEquals("text/plain", chunk.getMimeType());
            text.append(chunk.getText());
        }
        assertEquals("\ud83d\ude00".repeat(50_000), text.toString());
    }

    @Test
    void bytesComeInPiecesAndContentsInOrder() throws Exception {
        List<ContentChunk> chunks = read(pages, "bytes");
        assertEquals(5, chunks.size());
        assertEquals(200_000, chunks.stream().mapToInt(chunk -> chunk.getBlob().size()).sum());
        assertEquals("a note", chunks.get(4).getText());
        assertEquals(
                List.of(true, false, false, false, true),
                chunks.stream().map(ContentChunk::getStarts).toList());
    }

    @Test
    void faultsOfAReadBecomeStatuses() throws Exception {
        StatusRuntimeException missing =
                assertThrows(StatusRuntimeException.class, () -> read(pages, "other"));
        assertEquals(Status.Code.NOT_FOUND, missing.getStatus().getCode());
        assertEquals("there is no such page", missing.getStatus().getDescription());
        var late = ReadResourceRequest.newBuilder().setDeadline(Timestamp.newBuilder().setSeconds(1)).build();
        StatusRuntimeException over = assertThrows(
                StatusRuntimeException.class, () -> resources(pages).read(late).hasNext());
        assertEquals(Status.Code.DEADLINE_EXCEEDED, over.getStatus().getCode());
    }

    @Test
    void aResourceIsListedAndWatchedButNotInvoked() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.pages()).greet()) {
            var list = resources(worker).list(ListResourcesRequest.getDefaultInstance());
            assertEquals("pages://text", list.getResources(0).getUri());
            var updates = resources(worker).subscribe(SubscribeRequest.newBuilder().setUri("pages://text").build());
            assertEquals("pages://text", updates.next().getUri());
            worker.invoke(InvokeRequest.newBuilder().setRequestId("a"));
            assertEquals("UNSUPPORTED", CallTest.failed(worker.end()).getCode());
        }
    }

    @Test
    void anArgumentIsCompletedWhereThePluginSaysHow() throws Exception {
        var asked = ReadResourceRequest.newBuilder()
                .setCompleting("page")
                .setArguments(WorkerProcess.json(Map.of("page", "te", "shelf", "top")))
                .build();
        var completion = resources(pages).read(asked).next().getCompletion();
        assertEquals(List.of("page te top"), completion.getValuesList());
        assertEquals(1, completion.getTotal());
        try (WorkerProcess worker = WorkerProcess.start(Manifests.greeting())) {
            var prompts = PromptPluginGrpc.newBlockingStub(worker.channel(WorkerProcess.TOKEN));
            StatusRuntimeException none = assertThrows(
                    StatusRuntimeException.class,
                    () -> prompts.get(GetPromptRequest.newBuilder().setCompleting("name").build()));
            assertEquals(Status.Code.UNIMPLEMENTED, none.getStatus().getCode());
        }
    }

    @Test
    void aPromptAnswersWithItsMessages() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.greeting())) {
            var prompts = PromptPluginGrpc.newBlockingStub(worker.channel(WorkerProcess.TOKEN));
            assertEquals("fixture", prompts.list(ListPromptsRequest.getDefaultInstance()).getPrompts(0).getName());
            var got = prompts.get(GetPromptRequest.newBuilder()
                    .setArguments(WorkerProcess.json(Map.of("name", "Ada")))
                    .build());
            assertEquals("user", got.getMessages(0).getRole());
            assertEquals("Greet Ada", WorkerProcess.tree(got.getMessages(0).getContent()).get("text").asText());
            StatusRuntimeException missing = assertThrows(
                    StatusRuntimeException.class, () -> prompts.get(GetPromptRequest.getDefaultInstance()));
            assertEquals("the plugin failed; its log says why", missing.getStatus().getDescription());
        }
    }

    private static ResourcePluginGrpc.ResourcePluginBlockingStub resources(WorkerProcess worker) {
        return ResourcePluginGrpc.newBlockingStub(worker.channel(WorkerProcess.TOKEN));
    }

    private static List<ContentChunk> read(WorkerProcess worker, String page) {
        Iterator<ContentChunk> answer = resources(worker)
                .read(ReadResourceRequest.newBuilder()
                        .setUri("pages://" + page)
                        .setArguments(WorkerProcess.json(Map.of("page", page)))
                        .build());
        List<ContentChunk> chunks = new ArrayList<>();
        answer.forEachRemaining(chunks::add);
        return chunks;
    }
}
