package asp.plugin.worker;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/**
 * A connected Unix socket channel as a {@link Socket}. Reads and writes may run at once; the streams of
 * `java.nio.channels.Channels` share one lock for both in Java 17 (JDK-8279339), so they are not used.
 */
final class UnixSocket extends Socket {
    private final SocketChannel channel;

    UnixSocket(SocketChannel channel) throws SocketException {
        super((java.net.SocketImpl) null);
        this.channel = channel;
    }

    @Override
    public InputStream getInputStream() {
        return new Input();
    }

    @Override
    public OutputStream getOutputStream() {
        return new Output();
    }

    @Override
    public void connect(SocketAddress ignored, int timeoutMillis) {
        // Connected from the start.
    }

    @Override
    public boolean isConnected() {
        return true;
    }

    @Override
    public boolean isClosed() {
        return !channel.isOpen();
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }

    @Override
    public SocketAddress getRemoteSocketAddress() {
        return localOrNone();
    }

    @Override
    public SocketAddress getLocalSocketAddress() {
        return localOrNone();
    }

    /** TCP's knobs have no meaning here. */
    @Override
    public void setTcpNoDelay(boolean on) {}

    @Override
    public void setSoTimeout(int millis) {}

    @Override
    public int getSoTimeout() {
        return 0;
    }

    private SocketAddress localOrNone() {
        try {
            return channel.getLocalAddress();
        } catch (IOException closed) {
            return java.net.UnixDomainSocketAddress.of("");
        }
    }

    private final class Input extends InputStream {
        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            return length == 0 ? 0 : channel.read(ByteBuffer.wrap(bytes, offset, length));
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }

    private final class Output extends OutputStream {
        @Override
        public void write(int value) throws IOException {
            write(new byte[] {(byte) value}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, length);
            while (buffer.hasRemaining()) {
                channel.write(buffer);
            }
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }
}
