package asp.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Arguments by name: a number is what was written, or it is refused. */
class ArgumentsTest {
    record Price(BigDecimal amount) {}

    private static Arguments arguments(String number) throws IOException {
        return Arguments.of(Json.parse(("{\"amount\":" + number + "}").getBytes(StandardCharsets.UTF_8)));
    }

    @Test
    void aWholeNumberIsWhatWasWritten() throws Exception {
        assertEquals(Long.MAX_VALUE, arguments("9223372036854775807").integer("amount"));
        assertEquals(Long.MIN_VALUE, arguments("-9223372036854775808").integer("amount"));
        assertEquals(9007199254740993L, arguments("9007199254740993.0").integer("amount"));
        assertEquals(100, arguments("1e2").integer("amount"));
        assertEquals(7, Arguments.of(Map.of("amount", 7)).integer("amount"));
    }

    @Test
    void aNumberThatALongDoesNotHoldIsRefused() throws Exception {
        for (String number : List.of("9223372036854775808", "1.5", "1e19", "1e400", "1e5000", "-1e19")) {
            Arguments arguments = arguments(number);
            ArithmeticException refused =
                    assertThrows(ArithmeticException.class, () -> arguments.integer("amount"), number);
            assertTrue(refused.getMessage().contains("`amount`"), refused.getMessage());
        }
    }

    @Test
    void aBigDecimalIsNotRounded() throws Exception {
        BigDecimal exact = new BigDecimal("0.1234567890123456789012345");
        Arguments arguments = arguments(exact.toString());
        assertEquals(exact, arguments.get("amount", BigDecimal.class));
        assertEquals(exact, arguments.as(Price.class).amount());
        assertEquals(exact.doubleValue(), arguments.number("amount"));
        assertEquals(exact.doubleValue(), arguments.as(Map.class).get("amount"), "a map has doubles, as before");
    }
}
