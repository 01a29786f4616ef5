package asp.plugin;

/** A prompt: messages made from its arguments. One instance serves many calls at once. */
public interface Prompt {
    /** Returns the messages for the given arguments. */
    PromptMessages get(Arguments arguments, Context context) throws Exception;
}
