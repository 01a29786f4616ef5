package asp.plugin;

import java.util.Arrays;

/** One content of a resource: a text, or bytes. Exactly one of `text` and `bytes` is there. */
public record Content(String uri, String mimeType, String text, byte[] bytes) {
    public Content {
        if ((text == null) == (bytes == null)) {
            throw new IllegalArgumentException("a content holds a text or bytes, exactly one of the two");
        }
    }

    public static Content text(String uri, String mimeType, String text) {
        return new Content(uri, mimeType, text, null);
    }

    public static Content bytes(String uri, String mimeType, byte[] bytes) {
        return new Content(uri, mimeType, null, bytes);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Content that
                && uri.equals(that.uri)
                && java.util.Objects.equals(mimeType, that.mimeType)
                && java.util.Objects.equals(text, that.text)
                && Arrays.equals(bytes, that.bytes);
    }

    @Override
    public int hashCode() {
        return java.util.Objects.hash(uri, mimeType, text, Arrays.hashCode(bytes));
    }
}
