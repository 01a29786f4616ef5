package asp.plugin.testing;

import asp.plugin.Artifact;
import asp.plugin.LogLevel;
import asp.plugin.Question;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

/** What a handler told its {@link FakeContext}, each kind in its order. */
public record Recorded(
        List<Progress> progress,
        List<JsonNode> chunks,
        List<Sent> artifacts,
        List<Line> logs,
        List<Status> statuses,
        List<JsonNode> checkpoints,
        List<Asked> questions,
        List<Delegated> delegations,
        List<String> changedResources,
        List<String> completedElicitations) {

    public record Progress(double percent, String message, Map<String, Double> gauges) {}

    /** An artifact; `data` is null where an existing URI was named. */
    @SuppressWarnings("ArrayRecordComponent")
    public record Sent(Artifact about, String uri, byte[] data) {}

    /** A line of the log; `severity` is null if the handler logged at a level of the Java platform. */
    public record Line(System.Logger.Level level, String message, LogLevel severity) {
        public Line(System.Logger.Level level, String message) {
            this(level, message, null);
        }
    }

    public record Status(String phase, JsonNode metadata) {}

    public record Asked(String id, Question question) {}

    public record Delegated(String id, JsonNode input) {}

    Recorded() {
        this(
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>(),
                new CopyOnWriteArrayList<>());
    }
}
