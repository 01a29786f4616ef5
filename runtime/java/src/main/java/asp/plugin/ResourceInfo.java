package asp.plugin;

/** One entry of a resource list; `uri` and `name` are needed, the rest may be null. */
public record ResourceInfo(String uri, String name, String title, String description, String mimeType) {
    /** An entry with a name alone. */
    public ResourceInfo(String uri, String name) {
        this(uri, name, null, null, null);
    }
}
