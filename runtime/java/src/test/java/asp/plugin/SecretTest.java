package asp.plugin;

import static asp.plugin.CallTest.failed;
import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;

import asp.plugin.v1.InitRequest;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The named secrets of a worker: those of its first message, in no environment. */
class SecretTest {
    @Test
    void aToolHasTheSecretsOfItsWorkerAndNoOther() throws Exception {
        InitRequest init = InitRequest.newBuilder().putSecrets("crm-key", "hunter2").build();
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet(init)) {
            worker.invoke("own", Map.of("act", "secret"));
            assertEquals("*** hunter2 false", text(worker.end()));
            worker.invoke("other", Map.of("act", "other-secret"));
            var failed = failed(worker.end());
            assertEquals("SECRET_UNAVAILABLE", failed.getCode());
            assertEquals("secret other is not granted to this primitive", failed.getMessage());
            assertEquals("not_granted", WorkerProcess.tree(failed.getDetails()).get("reason").asText());
        }
    }
}
