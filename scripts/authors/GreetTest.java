import asp.plugin.testing.FakeContext;

/** A unit test of the greeting that `asp plugin new` writes in Java, without a library of tests. */
public final class GreetTest {
    private GreetTest() {}

    public static void main(String[] arguments) {
        FakeContext context = new FakeContext();
        Main.Output output = new Main().run(new Main.Input("Ada"), context);
        if (!output.greeting().equals("Hello, Ada!") || context.recorded().progress().size() != 1) {
            throw new AssertionError(output + " after " + context.recorded().progress());
        }
    }
}
