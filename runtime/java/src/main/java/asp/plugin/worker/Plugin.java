package asp.plugin.worker;

import asp.plugin.Prompt;
import asp.plugin.Resource;
import asp.plugin.Tool;
import asp.plugin.TypedTool;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * The loaded code of one primitive: an instance of its entrypoint. Its classes are looked for in `package/`, `package/classes/`,
 * `package/*.jar` and `package/lib/*.jar`, in this order and by name; the worker's own libraries come first, so a
 * plugin that brings another version of them uses the worker's.
 */
final class Plugin {
    private static final int MAX_JARS = 512;
    private static final int MAX_CAUSES = 16;

    private final Manifest manifest;
    private final Object instance;
    /** Null for a plugin that declares no types. */
    private final Typed typed;

    private Plugin(Manifest manifest, Object instance) {
        this.manifest = manifest;
        this.instance = instance;
        this.typed = instance instanceof TypedTool<?, ?> tool ? Typed.of(tool) : null;
    }

    /** Loads each primitive, all by one loader: they share the package's classes. */
    static List<Plugin> load(List<Manifest> manifests, Path code) throws Exit.Refusal {
        ClassLoader loader = new URLClassLoader(Unexpected.LOADER, urls(code), Plugin.class.getClassLoader());
        // Libraries that look for services or configuration ask the thread's loader.
        Thread.currentThread().setContextClassLoader(loader);
        List<Plugin> plugins = new ArrayList<>();
        for (Manifest manifest : manifests) {
            plugins.add(load(manifest, loader));
        }
        return plugins;
    }

    private static Plugin load(Manifest manifest, ClassLoader loader) throws Exit.Refusal {
        Object instance = instance(manifest.entrypoint(), loader);
        List<Class<?>> wanted = switch (manifest.kind()) {
            case TOOL -> List.of(Tool.class, TypedTool.class);
            case RESOURCE -> List.of(Resource.class);
            case PROMPT -> List.of(Prompt.class);
        };
        if (wanted.stream().noneMatch(type -> type.isInstance(instance))) {
            throw refusal(manifest.entrypoint() + " does not implement "
                    + String.join(" or ", wanted.stream().map(Class::getName).toList()));
        }
        return new Plugin(manifest, instance);
    }

    Manifest manifest() {
        return manifest;
    }

    /** Returns the tool, or null when the plugin is of another kind; so do the two below. */
    Tool tool() {
        return instance instanceof Tool tool ? tool : typed;
    }

    /** Returns what its types say, as `describe` wants it. */
    JsonNode description() {
        return Typed.description(typed);
    }

    Resource resource() {
        return instance instanceof Resource resource ? resource : null;
    }

    Prompt prompt() {
        return instance instanceof Prompt prompt ? prompt : null;
    }

    private static URL[] urls(Path code) throws Exit.Refusal {
        List<URL> urls = new ArrayList<>();
        try {
            urls.add(code.toUri().toURL());
            Path classes = code.resolve("classes");
            if (Files.isDirectory(classes)) {
                urls.add(classes.toUri().toURL());
            }
            addJars(code, urls);
            addJars(code.resolve("lib"), urls);
        } catch (IOException fault) {
            throw refusal("the package cannot be read");
        }
        return urls.toArray(URL[]::new);
    }

    private static void addJars(Path directory, List<URL> urls) throws IOException {
        if (!Files.isDirectory(directory)) {
            return;
        }
        try (Stream<Path> files = Files.list(directory)) {
            List<Path> jars = files.filter(file -> file.toString().endsWith(".jar"))
                    .sorted()
                    .limit(MAX_JARS)
                    .toList();
            for (Path jar : jars) {
                urls.add(url(jar));
            }
        }
    }

    private static URL url(Path path) throws MalformedURLException {
        return path.toUri().toURL();
    }

    /** Makes an instance of a class, `Main`, or of one nested in it, `Main:Forecast`. */
    private static Object instance(String entrypoint, ClassLoader loader) throws Exit.Refusal {
        String name = entrypoint.replace(':', '$');
        try {
            return Class.forName(name, true, loader).getConstructor().newInstance();
        } catch (ClassNotFoundException fault) {
            throw refusal("there is no class " + name + " in the package; runtime.entrypoint names it");
        } catch (NoSuchMethodException fault) {
            throw refusal(name + " has no public constructor without parameters");
        } catch (Exception | LinkageError fault) {
            String library = missingClass(fault);
            if (library != null) {
                throw refusal(name + " needs the class " + library
                        + ", which is not in the package: a library is a dependency in the pom.xml beside the code");
            }
            Throwable cause = fault.getCause() == null ? fault : fault.getCause();
            cause.printStackTrace();
            throw refusal(name + " cannot be made: " + cause);
        }
    }

    /** Returns the class that something could not be linked to, or null where that is not the fault. */
    private static String missingClass(Throwable fault) {
        Throwable cause = fault;
        for (int depth = 0; cause != null && depth < MAX_CAUSES; depth++) {
            if (cause instanceof NoClassDefFoundError && cause.getCause() instanceof ClassNotFoundException missing) {
                return missing.getMessage();
            }
            cause = cause.getCause();
        }
        return null;
    }

    private static Exit.Refusal refusal(String message) {
        return new Exit.Refusal(Exit.PLUGIN_UNUSABLE, message);
    }
}
