import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Prompt;
import asp.plugin.PromptMessages;

/** Asks for a greeting. */
public final class Main implements Prompt {
    @Override
    public PromptMessages get(Arguments arguments, Context context) {
        return PromptMessages.of(PromptMessages.user("Write a greeting for " + arguments.string("name") + "."));
    }
}
