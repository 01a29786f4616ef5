package asp.plugin;

import java.util.List;
import java.util.Map;

/**
 * What a user is asked. What is null or empty comes from the spec.
 *
 * @param schema an MCP form schema; replaces `fields`
 * @param url where the spec names a page (`primitiveSchema.url`): the page below it that the user is sent to. The answer
 *        says whether the user agreed, and what is done there your service knows
 */
public record Question(String title, String message, List<Field> fields, Map<String, ?> schema, String url) {
    /** One field of a form; `type` is string, boolean or number. */
    public record Field(String name, String type, boolean required, String label) {}

    public Question {
        fields = fields == null ? List.of() : List.copyOf(fields);
    }

    /** A question without a page. */
    public Question(String title, String message, List<Field> fields, Map<String, ?> schema) {
        this(title, message, fields, schema, null);
    }

    /** Sends the user to a page below the spec's. */
    public static Question page(String message, String url) {
        return new Question(null, message, null, null, url);
    }

    /** The question as the spec has it. */
    public static Question asDeclared() {
        return new Question(null, null, null, null);
    }

    /** Another text, with the fields of the spec unless some are given. */
    public static Question of(String message, Field... fields) {
        return new Question(null, message, List.of(fields), null);
    }

    /** A form made now. */
    public static Question of(String message, Map<String, ?> schema) {
        return new Question(null, message, null, schema);
    }
}
