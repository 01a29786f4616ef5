package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.PluginException;
import asp.plugin.Result;
import asp.plugin.Tool;
import asp.plugin.TypedTool;
import asp.plugin.worker.types.Misfit;
import asp.plugin.worker.types.NoSchema;
import asp.plugin.worker.types.Root;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;

/**
 * A {@link TypedTool} as the worker calls every tool: JSON becomes its input before it runs, and its output JSON. Types
 * without a schema are told when somebody asks for the schema or calls, and not by a worker that does not start.
 */
public final class Typed implements Tool {
    private static final int FORMAT = 1;

    private final TypedTool<Object, Object> tool;
    private Root input;
    private Root output;
    private String fault;

    @SuppressWarnings("unchecked")
    private Typed(TypedTool<?, ?> tool) {
        this.tool = (TypedTool<Object, Object>) tool;
        try {
            input = Root.of(tool.getClass(), TypedTool.class, 0, "input");
            output = Root.of(tool.getClass(), TypedTool.class, 1, "output");
        } catch (NoSchema none) {
            fault = none.getMessage();
        }
    }

    public static Typed of(TypedTool<?, ?> tool) {
        return new Typed(tool);
    }

    /** Returns what `describe` is answered with; `tool` is null for a plugin that declares no types. */
    static ObjectNode description(Typed tool) {
        ObjectNode description = Json.mapper().createObjectNode().put("format", FORMAT);
        if (tool != null) {
            tool.known();
        }
        description.set("inputSchema", tool == null ? null : tool.input.schema());
        description.set("outputSchema", tool == null ? null : tool.output.schema());
        return description.putNull("artifactSchema");
    }

    @Override
    public Object run(Arguments arguments, Context context) throws Exception {
        known();
        Object returned = tool.run(read(arguments), context);
        if (returned instanceof Result) {
            return returned;
        }
        try {
            return output.write(returned);
        } catch (Misfit misfit) {
            throw fault("INVALID_OUTPUT", misfit);
        }
    }

    @Override
    public boolean resumable() {
        return tool.resumable();
    }

    private Object read(Arguments arguments) {
        try {
            return input.read(arguments.node());
        } catch (Misfit misfit) {
            throw fault("INVALID_ARGUMENT", misfit);
        }
    }

    private void known() {
        if (fault != null) {
            throw new PluginException("SCHEMA", fault);
        }
    }

    private static PluginException fault(String code, Misfit misfit) {
        return new PluginException(code, misfit.getMessage(), Map.of("pointer", misfit.pointer()));
    }
}
