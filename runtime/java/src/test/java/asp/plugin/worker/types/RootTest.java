package asp.plugin.worker.types;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.Property;
import asp.plugin.Result;
import asp.plugin.TypedTool;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import org.junit.jupiter.api.Test;

/** Types as JSON: what schema each has, and that values come back as they went. */
class RootTest {
    record Everything(
            boolean flag,
            byte small,
            short shorter,
            int number,
            long large,
            BigInteger huge,
            float single,
            double twice,
            BigDecimal exact,
            UUID id,
            URI where,
            Instant at,
            OffsetDateTime there,
            Duration took,
            int[] counts,
            String[] words,
            Set<String> kinds,
            Map<String, List<Long>> groups,
            JsonNode open,
            Map<String, Object> bare,
            Object anything) {}

    record Tree(String name, List<Tree> children) {}

    record Page<T>(List<T> items, Optional<Page<T>> next) {}

    record Book(Page<String> words, Page<Tree> trees) {}

    record Numbers(List<@Property(min = 2, max = 9007199254740991L) Long> numbers, @Property(min = 0.5) double rate) {}

    record Bytes(byte[] data) {}

    record Exact(BigDecimal exact, double twice) {}

    record Keys(Map<Integer, String> map) {}

    record Raw(@SuppressWarnings("rawtypes") List list) {}

    record Letters(char letter) {}

    record Bean(Thread thread) {}

    record Wrong(@Property(defaultValue = "many") int count) {}

    record Nested(Optional<Optional<String>> twice) {}

    abstract static class Both<T> implements TypedTool<T, T> {
        @Override
        public T run(T input, Context context) {
            return input;
        }
    }

    static final class OfEverything extends Both<Everything> {}

    static final class OfTree extends Both<Tree> {}

    static final class OfBook extends Both<Book> {}

    static final class OfNumbers extends Both<Numbers> {}

    static final class OfBytes extends Both<Bytes> {}

    static final class OfExact extends Both<Exact> {}

    static final class OfKeys extends Both<Keys> {}

    static final class OfRaw extends Both<Raw> {}

    static final class OfLetters extends Both<Letters> {}

    static final class OfBean extends Both<Bean> {}

    static final class OfWrong extends Both<Wrong> {}

    static final class OfNested extends Both<Nested> {}

    static final class OfText extends Both<String> {}

    static final class OfMap extends Both<Map<String, Tree>> {}

    static final class OfAny<T> extends Both<T> {}

    static final class OfOpen implements TypedTool<Arguments, Result> {
        @Override
        public Result run(Arguments input, Context context) {
            return Result.error("no");
        }
    }

    @SuppressWarnings("rawtypes")
    static final class OfNothing implements TypedTool {
        @Override
        public Object run(Object input, Context context) {
            return input;
        }
    }

    private static Root root(Class<?> type) throws NoSchema {
        return Root.of(type, TypedTool.class, 0, "input");
    }

    private static JsonNode json(String text) throws IOException {
        return Json.parse(text.replace('\'', '"').getBytes());
    }

    private static void refused(Class<?> type, String message) {
        assertEquals(message, assertThrows(NoSchema.class, () -> root(type)).getMessage());
    }

    @Test
    void everyTypeComesBackAsItWent() throws Exception {
        JsonNode json = json("{'flag':true,'small':-128,'shorter':7,'number':1,'large':9223372036854775807,"
                + "'huge':123456789012345678901234567890,'single':1.5,'twice':0.1,'exact':1.10,"
                + "'id':'00000000-0000-0001-0000-000000000002','where':'https://example.com/a','at':'2026-01-02T03:04:05Z',"
                + "'there':'2026-01-02T03:04:05+02:00','took':'PT1M','counts':[1,2],'words':['a'],'kinds':['b','a'],"
                + "'groups':{'x':[1]},'open':[1,{'a':null}],'bare':{'k':1},'anything':'text'}");
        Root root = root(OfEverything.class);
        Everything read = (Everything) root.read(json);
        assertArrayEquals(new int[] {1, 2}, read.counts());
        assertEquals(Instant.parse("2026-01-02T03:04:05Z"), read.at());
        assertEquals(json.toString(), root.write(read).toString());
    }

    @Test
    void aBigDecimalIsWhatWasWritten() throws Exception {
        Root root = root(OfExact.class);
        for (String exact : List.of("0.1234567890123456789012345", "12345678901234567890.5", "1e400", "1.10")) {
            Exact read = (Exact) root.read(json("{'exact':" + exact + ",'twice':" + 0.1 + "}"));
            assertEquals(new BigDecimal(exact), read.exact());
            assertEquals(0.1, read.twice());
            assertEquals(0, new BigDecimal(exact).compareTo(root.write(read).get("exact").decimalValue()));
        }
        Misfit misfit = assertThrows(Misfit.class, () -> root.read(json("{'exact':1e5000,'twice':1}")));
        assertEquals("/exact", misfit.pointer());
    }

    @Test
    void aRecordThatHoldsItselfRefersToTheRoot() throws Exception {
        Root root = root(OfTree.class);
        assertEquals(
                json("{'type':'object','properties':{'name':{'type':'string'},'children':{'type':'array','items':{'$ref':'#'}}},"
                        + "'required':['name','children'],'additionalProperties':false}"),
                root.schema());
        JsonNode json = json("{'name':'a','children':[{'name':'b','children':[]}]}");
        assertEquals(json, root.write(root.read(json)));
        Misfit misfit = assertThrows(
                Misfit.class, () -> root.read(json("{'name':'a','children':[{'name':'b','children':[{'name':1}]}]}")));
        assertEquals("/children/0/children/0/name", misfit.pointer());
    }

    @Test
    void aGenericRecordIsOneDefinitionForEachType() throws Exception {
        JsonNode schema = root(OfBook.class).schema();
        assertEquals("#/$defs/Page", schema.at("/properties/words/$ref").asText());
        assertEquals("#/$defs/Page2", schema.at("/properties/trees/$ref").asText());
        assertEquals("string", schema.at("/$defs/Page/properties/items/items/type").asText());
        assertEquals("#/$defs/Tree", schema.at("/$defs/Page2/properties/items/items/$ref").asText());
        assertEquals("#/$defs/Page2", schema.at("/$defs/Page2/properties/next/$ref").asText());
        assertEquals(schema.toString(), root(OfBook.class).schema().toString());
    }

    @Test
    void boundsStandAtItemsToo() throws Exception {
        assertEquals(
                json("{'numbers':{'type':'array','items':{'type':'integer','minimum':2,'maximum':9007199254740991}},"
                                + "'rate':{'type':'number','minimum':0.5}}")
                        .toString(),
                root(OfNumbers.class).schema().get("properties").toString());
    }

    @Test
    void whatSaysNothingHasNoSchema() throws Exception {
        assertNull(root(OfOpen.class).schema());
        assertNull(Root.of(OfOpen.class, TypedTool.class, 1, "output").schema());
        assertEquals("1", ((Arguments) root(OfOpen.class).read(json("{'a':1}"))).string("a"));
        JsonNode map = root(OfMap.class).schema();
        assertEquals("#/$defs/Tree", map.at("/additionalProperties/$ref").asText());
        assertEquals("#/$defs/Tree", map.at("/$defs/Tree/properties/children/items/$ref").asText());
    }

    @Test
    void whatJsonCannotSayIsRefusedWithTheWayOut() {
        assertThrows(NoSchema.class, () -> root(LocalDateTime.class));
        refused(OfBytes.class, "input.data: byte[] has no schema; write a List, or a String of Base64 for bytes");
        refused(OfKeys.class, "input.map: the keys of a Map are Strings in JSON");
        refused(OfLetters.class, "input.letter: char has no schema; write String");
        String other = " has no schema; write a record with its fields, or a type that TypedTool names";
        refused(OfRaw.class, "input.list: java.util.List" + other);
        refused(OfBean.class, "input.thread: java.lang.Thread" + other);
        refused(OfWrong.class, "input.count: the default `many` does not fit the type; write it as JSON");
        refused(OfNested.class, "input.twice: java.util.Optional<java.lang.String> has no schema here; a record's component"
                + " may be one");
        refused(OfText.class, "input: is no object; write a record around it");
        refused(OfAny.class, "input: T stands for no type; name one in `implements`");
        refused(OfNothing.class, "input: " + OfNothing.class.getName()
                + " names no types; write implements TypedTool<Input, Output>");
    }
}
