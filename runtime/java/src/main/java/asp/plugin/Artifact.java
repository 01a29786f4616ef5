package asp.plugin;

import java.util.regex.Pattern;

/**
 * What an artifact is, apart from its bytes.
 *
 * @param name letters, digits, dot, dash and underscore, at most 128; part of its URI
 * @param type a word of the spec, such as `csv` or `report`
 * @param contentType media type
 * @param description for people
 */
public record Artifact(String name, String type, String contentType, String description) {
    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}");

    public Artifact {
        if (!NAME.matcher(name).matches()) {
            throw new IllegalArgumentException("`" + name + "` is no name of an artifact");
        }
    }
}
