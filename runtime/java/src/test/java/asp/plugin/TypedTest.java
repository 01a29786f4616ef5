package asp.plugin;

import static asp.plugin.CallTest.failed;
import static asp.plugin.CallTest.last;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.fixtures.Dated;
import asp.plugin.fixtures.Forecast;
import asp.plugin.v1.Failed;
import asp.plugin.v1.ServerMessage;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A tool whose types are records, over a real worker: what it says of itself, and how values are converted. */
class TypedTest {
    private static final String NOTHING =
            "{\"format\":1,\"inputSchema\":null,\"outputSchema\":null,\"artifactSchema\":null}";

    private static WorkerProcess worker;

    @BeforeAll
    static void start() throws Exception {
        worker = WorkerProcess.start(Manifests.of("tool", Forecast.class.getName())).greet();
    }

    @AfterAll
    static void stop() throws Exception {
        worker.close();
    }

    @Test
    void aWorkerSaysWhatItsTypesAreAndItsHandlerDoesNotRun() throws Exception {
        String place = "\"$defs\":{\"Place\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
                + "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"default\":[]}},"
                + "\"required\":[\"name\"],\"additionalProperties\":false}}";
        String input = "{\"type\":\"object\",\"properties\":{"
                + "\"city\":{\"type\":\"string\",\"description\":\"Where\",\"minLength\":1},"
                + "\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14,\"default\":3},"
                + "\"unit\":{\"type\":\"string\",\"enum\":[\"CELSIUS\",\"FAHRENHEIT\"]},"
                + "\"height\":{\"type\":\"integer\"},"
                + "\"near\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/Place\"}},"
                + "\"weights\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\"}},"
                + "\"on\":{\"type\":\"string\",\"format\":\"date\"},"
                + "\"act\":{\"type\":\"string\",\"default\":\"tell\"}},"
                + "\"required\":[\"city\"],\"additionalProperties\":false," + place + "}";
        String output = "{\"type\":\"object\",\"properties\":{"
                + "\"text\":{\"type\":\"string\"},\"mean\":{\"type\":\"number\"},\"place\":{\"$ref\":\"#/$defs/Place\"},"
                + "\"at\":{\"type\":\"string\",\"format\":\"date-time\"}},"
                + "\"required\":[\"text\",\"mean\",\"at\"],\"additionalProperties\":false," + place + "}";
        try (WorkerProcess fresh = WorkerProcess.start(Manifests.of("tool", Forecast.class.getName())).greet()) {
            List<ServerMessage> all = describe(fresh);
            assertEquals(
                    "{\"format\":1,\"inputSchema\":" + input + ",\"outputSchema\":" + output
                            + ",\"artifactSchema\":null}",
                    text(all));
            assertEquals(1, all.size());
            assertFalse(fresh.output().contains("the handler runs"));
        }
    }

    @Test
    void argumentsComeAsTheRecordAndTheResultGoesAsJson() throws Exception {
        List<ServerMessage> all = worker.call("all", Map.of(
                "city", "Oslo",
                "days", 2.0,
                "unit", "CELSIUS",
                "near", List.of(Map.of("name", "Moss")),
                "weights", Map.of("a", 1),
                "on", "2026-02-03"));
        var output = WorkerProcess.tree(last(all).getCompleted().getOutput());
        assertEquals(
                "Input[city=Oslo, days=2, unit=Optional[CELSIUS], height=null, near=Optional[[Place[name=Moss, tags=[]]]],"
                        + " weights=Optional[{a=1.0}], on=Optional[2026-02-03], act=tell]",
                output.get("text").asText());
        assertEquals("{\"name\":\"Moss\",\"tags\":[]}", output.get("place").toString());
        assertEquals("2026-01-02T03:04:05Z", output.get("at").asText());
        var bare = WorkerProcess.tree(last(worker.call("bare", Map.of("city", "x"))).getCompleted().getOutput());
        assertTrue(bare.get("text").asText().contains("days=3, unit=Optional.empty, height=null"));
        assertFalse(bare.has("place"));
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            {}                                              | /city        | is missing
            {"city":7}                                      | /city        | must be a string, not number
            {"city":null}                                   | /city        | must be a string, not null
            {"city":"x","days":"3"}                         | /days        | must be an integer, not string
            {"city":"x","days":2.5}                         | /days        | must be an integer
            {"city":"x","days":3000000000}                  | /days        | is beyond what int holds
            {"city":"x","days":1e300}                       | /days        | must be an integer
            {"city":"x","days":null}                        | /days        | must be an integer, not null
            {"city":"x","days":13}                          | ''           | 13 days bring bad luck
            {"city":"x","unit":"KELVIN"}                    | /unit        | must be one of [CELSIUS, FAHRENHEIT]
            {"city":"x","near":{}}                          | /near        | must be an array, not object
            {"city":"x","near":[{"name":"a"},{"name":1}]}   | /near/1/name | must be a string, not number
            {"city":"x","weights":{"a/b":"1"}}              | /weights/a~1b| must be a number, not string
            {"city":"x","on":"yesterday"}                   | /on          | must be a date
            {"city":"x","other":1}                          | /other       | is unknown
            """)
    void argumentsOfAnotherTypeNeverReachTheHandler(String arguments, String pointer, String words) throws Exception {
        Failed failed = failed(worker.call("bad", Json.parse(arguments.getBytes())));
        assertEquals("INVALID_ARGUMENT", failed.getCode());
        assertEquals((pointer.isEmpty() ? "/" : pointer) + ": " + words, failed.getMessage());
        assertEquals(pointer, WorkerProcess.tree(failed.getDetails()).get("pointer").asText());
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            null    | /text: is null
            nan     | /mean: is NaN, which JSON cannot say
            nothing | /: is null
            deep    | /place/tags: is null
            """)
    void aResultOfAnotherTypeIsRefusedByTheField(String act, String message) throws Exception {
        Failed failed = failed(worker.call("bad-" + act, Map.of("city", "x", "act", act)));
        assertEquals("INVALID_OUTPUT", failed.getCode());
        assertEquals(message, failed.getMessage());
    }

    @Test
    void aFailureThatTheModelReadsIsThrown() throws Exception {
        var completed = last(worker.call("error", Map.of("city", "x", "act", "tool-error"))).getCompleted();
        assertTrue(completed.getIsError());
        assertTrue(completed.getContent().getValue().toStringUtf8().contains("no weather"));
    }

    @Test
    void aTypeWithoutASchemaIsNamedWithItsFieldAndTheWayOut() throws Exception {
        try (WorkerProcess dated = WorkerProcess.start(Manifests.of("tool", Dated.class.getName())).greet()) {
            String message = "input.legs[].on: java.time.LocalDateTime has no schema: it has no offset; "
                    + "write java.time.Instant or OffsetDateTime";
            assertEquals("SCHEMA", failed(describe(dated)).getCode());
            assertEquals(message, failed(describe(dated)).getMessage());
            assertEquals("SCHEMA", failed(dated.call("run", Map.of())).getCode());
        }
    }

    @Test
    void aPluginWithoutTypesSaysNothingOfWhateverKindItIs() throws Exception {
        for (var manifest : List.of(Manifests.acts(), Manifests.pages(), Manifests.greeting())) {
            try (WorkerProcess untyped = WorkerProcess.start(manifest).greet()) {
                assertEquals(NOTHING, text(describe(untyped)));
            }
        }
    }

    private static List<ServerMessage> describe(WorkerProcess worker) throws Exception {
        worker.invoke(WorkerProcess.invocation("describe", Map.of()).clearArguments().setDescribe(true));
        return worker.end();
    }

    private static String text(List<ServerMessage> all) {
        return last(all).getCompleted().getOutput().getValue().toStringUtf8();
    }
}
