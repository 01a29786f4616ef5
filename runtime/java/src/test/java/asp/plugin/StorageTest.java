package asp.plugin;

import static asp.plugin.CallTest.failed;
import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.DeliverStorageAnswer;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.StorageRequested;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** What a handler keeps beyond its call: the requests it sends, and how many at a time. */
class StorageTest {
    private static WorkerProcess worker;

    @BeforeAll
    static void start() throws Exception {
        worker = WorkerProcess.start(Manifests.acts()).greet();
    }

    @AfterAll
    static void stop() throws Exception {
        worker.close();
    }

    @Test
    void aRequestIsSentWithItsPartsAndAnswered() throws Exception {
        worker.invoke("store", Map.of("act", "store"));
        StorageRequested get = asked();
        assertTrue(get.getOfUser());
        assertEquals("n", get.getGet().getKey());
        answer(get, result().setValue(WorkerProcess.json(4)).setVersion(7));
        StorageRequested put = asked();
        assertEquals("5", put.getPut().getValue().getValue().toStringUtf8());
        assertEquals(7, put.getPut().getIfVersion());
        assertEquals(1, put.getPut().getTtl().getSeconds());
        assertEquals(500_000_000, put.getPut().getTtl().getNanos());
        answer(put, result().setVersion(8));
        StorageRequested first = asked();
        assertEquals("p", first.getList().getPrefix());
        answer(first, result().addAllKeys(List.of("p1", "p2")).setHasMore(true));
        StorageRequested second = asked();
        assertEquals("p2", second.getList().getAfter());
        answer(second, result().addKeys("p3"));
        StorageRequested delete = asked();
        assertEquals("x", delete.getDelete().getKey());
        answer(delete, result().setDeleted(true));
        assertEquals("5 8 [p1, p2, p3] true", text(worker.end()));
    }

    @Test
    void aRefusalFailsWithTheReason() throws Exception {
        worker.invoke("refused", Map.of("act", "store"));
        answer(asked(), result().setError("not_granted"));
        var failed = failed(worker.end());
        assertEquals("STORAGE_FAILED", failed.getCode());
        assertEquals("not_granted", WorkerProcess.tree(failed.getDetails()).get("reason").asText());
    }

    @Test
    void moreThanSixteenRequestsWaitForAPlace() throws Exception {
        worker.invoke("many", Map.of("act", "fetch-many", "count", 18));
        List<StorageRequested> open = new ArrayList<>();
        for (int number = 0; number < 16; number++) {
            open.add(asked());
        }
        assertTrue(worker.isQuiet());
        while (open.size() < 18) {
            answer(open.get(open.size() - 16), result().setValue(WorkerProcess.json(1)));
            open.add(asked());
        }
        open.subList(2, 18).forEach(one -> answer(one, result().setValue(WorkerProcess.json(1))));
        assertEquals("18", text(worker.end()));
    }

    private static StorageRequested asked() throws Exception {
        return worker.next(ServerMessage::hasStorageRequested).getStorageRequested();
    }

    private static DeliverStorageAnswer.Builder result() {
        return DeliverStorageAnswer.newBuilder();
    }

    private static void answer(StorageRequested asked, DeliverStorageAnswer.Builder answer) {
        answer.setRequestId(asked.getRequestId()).setCorrelationId(asked.getCorrelationId());
        worker.send(ClientMessage.newBuilder().setStorageAnswer(answer).build());
    }
}
