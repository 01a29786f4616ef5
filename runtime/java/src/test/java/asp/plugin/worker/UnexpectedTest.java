package asp.plugin.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.SocketException;
import java.net.UnknownHostException;
import org.junit.jupiter.api.Test;

class UnexpectedTest {
    @Test
    void itNamesTheLineOfThePluginsOwnCode() {
        Exception thrown = new IllegalStateException("no city");
        thrown.setStackTrace(new StackTraceElement[] {
            new StackTraceElement("app", null, null, "java.util.List", "get", "List.java", 7),
            new StackTraceElement(Unexpected.LOADER, null, null, "Main", "run", "Main.java", 12),
        });
        assertEquals("Main.java:12: java.lang.IllegalStateException: no city", Unexpected.described(thrown));
        assertEquals("Main.java:12", Unexpected.place(thrown.getStackTrace()));
        assertEquals("", Unexpected.place(new StackTraceElement[0]));
        assertEquals(Unexpected.FOR_CALLERS, Unexpected.text(thrown), "a test is no development");
    }

    @Test
    void itNamesTheLimitThatAnExceptionMet() {
        assertTrue(limit(new UnknownHostException("example.org")).contains("security.allowedDomains"));
        assertTrue(limit(new SocketException("Address family not supported by protocol"))
                .contains("security.allowedDomains"));
        assertTrue(limit(new IOException("No space left on device")).contains("runtime.resources.disk"));
        assertTrue(limit(new IOException("Too many open files")).contains("runtime.resources.files"));
        assertTrue(limit(new OutOfMemoryError("unable to create native thread")).contains("runtime.resources.pids"));
        assertNull(Unexpected.limit(new IllegalStateException("own")));
    }

    /** As a library wraps it. */
    private static String limit(Throwable cause) {
        return Unexpected.limit(new RuntimeException("request failed", cause));
    }
}
