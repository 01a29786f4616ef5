import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Tool;

/** Says what it was told. */
public final class Main implements Tool {
    record Said(String text) {}

    @Override
    public Object run(Arguments arguments, Context context) {
        return new Said(arguments.string("text"));
    }
}
