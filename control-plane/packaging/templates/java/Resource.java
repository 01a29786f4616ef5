import asp.plugin.Arguments;
import asp.plugin.Content;
import asp.plugin.Context;
import asp.plugin.Resource;
import java.util.List;

/** Greets everybody. */
public final class Main implements Resource {
    @Override
    public List<Content> read(String uri, Arguments variables, Context context) {
        return List.of(Content.text(uri, "text/plain", "Hello, everybody!"));
    }
}
