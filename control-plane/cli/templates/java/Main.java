import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Tool;

/** Greets someone by name. */
public final class Main implements Tool {
    record Greeting(String greeting) {}

    @Override
    public Object run(Arguments arguments, Context context) {
        context.progress(50, "finding the words");
        return new Greeting("Hello, " + arguments.string("name") + "!");
    }
}
