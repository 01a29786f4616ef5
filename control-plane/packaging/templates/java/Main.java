import asp.plugin.Context;
import asp.plugin.TypedTool;

/** Greets someone by name. */
public final class Main implements TypedTool<Main.Input, Main.Output> {
    record Input(String name) {}

    record Output(String greeting) {}

    @Override
    public Output run(Input input, Context context) {
        context.progress(50, "finding the words");
        return new Output("Hello, " + input.name() + "!");
    }
}
