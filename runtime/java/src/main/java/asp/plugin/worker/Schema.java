package asp.plugin.worker;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import com.networknt.schema.Error;
import com.networknt.schema.SchemaRegistry;
import com.networknt.schema.SchemaRegistryConfig;
import com.networknt.schema.SpecificationVersion;
import com.networknt.schema.regex.RegularExpression;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A JSON Schema 2020-12 that is compiled once. Formats are asserted, references stay inside the schema, and patterns
 * run in linear time, as in the gateway.
 */
final class Schema {
    /** Faults told to a caller: enough to correct a call, few enough to read. */
    private static final int MAX_FAULTS = 8;

    private final com.networknt.schema.Schema compiled;

    private Schema(com.networknt.schema.Schema compiled) {
        this.compiled = compiled;
    }

    /** One place that does not fit; `path` is a JSON Pointer. */
    record Fault(String path, String message) {}

    /** Compiles a schema; without one, everything is valid. */
    static Schema of(JsonNode json) throws Exit.Refusal {
        if (json == null || json.isNull()) {
            return new Schema(null);
        }
        try {
            com.networknt.schema.Schema schema = Registry.INSTANCE.getSchema(json);
            schema.initializeValidators();
            return new Schema(schema);
        } catch (RuntimeException fault) {
            throw new Exit.Refusal(Exit.PLUGIN_UNUSABLE, "a schema of plugin.json is unusable: " + fault.getMessage());
        }
    }

    /** Returns what does not fit, at most a handful; empty when the value is valid. */
    List<Fault> check(JsonNode value) {
        List<Fault> faults = new ArrayList<>();
        if (compiled == null) {
            return faults;
        }
        for (Error error : compiled.validate(value)) {
            if (faults.size() == MAX_FAULTS) {
                break;
            }
            faults.add(new Fault(error.getInstanceLocation().toString(), error.getMessage()));
        }
        return faults;
    }

    /** Says where the first fault is, as the details of a failure. */
    static Map<String, String> place(List<Fault> faults) {
        return Map.of("pointer", faults.get(0).path());
    }

    /** Joins faults to one sentence for a caller. */
    static String sentence(String what, List<Fault> faults) {
        StringBuilder text = new StringBuilder(what);
        for (Fault fault : faults) {
            text.append(text.length() == what.length() ? ": " : "; ");
            text.append(fault.path().isEmpty() ? "" : fault.path() + " ").append(fault.message());
        }
        return text.toString();
    }

    /** Made at the first schema: a plugin without schemas does not pay for the library. */
    private static final class Registry {
        static final SchemaRegistry INSTANCE = SchemaRegistry.withDefaultDialect(
                SpecificationVersion.DRAFT_2020_12,
                builder -> builder.schemaLoader(loader -> loader.block(iri -> true))
                        .schemaRegistryConfig(SchemaRegistryConfig.builder()
                                .formatAssertionsEnabled(true)
                                .regularExpressionFactory(Registry::pattern)
                                .locale(java.util.Locale.ROOT)
                                .build()));

        private static RegularExpression pattern(String source) {
            try {
                Pattern pattern = Pattern.compile(source);
                return text -> pattern.matcher(text).find();
            } catch (PatternSyntaxException unknown) {
                // ECMAScript has spellings RE2 does not know (`\\u00e9`); Java's engine knows them.
                java.util.regex.Pattern pattern = java.util.regex.Pattern.compile(source);
                return text -> pattern.matcher(text).find();
            }
        }
    }
}
