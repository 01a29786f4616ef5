package asp.plugin.worker;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import javax.net.ServerSocketFactory;
import javax.net.SocketFactory;

/**
 * Unix sockets of the JDK behind the factories that gRPC's okhttp transport takes. Hosts and ports mean nothing here:
 * whatever is asked for, the one path is used.
 */
public final class UnixSockets {
    private UnixSockets() {}

    /** Listens at `path`, which must not exist. */
    public static ServerSocketFactory listening(Path path) {
        return new Listening(UnixDomainSocketAddress.of(path));
    }

    /** Connects to `path`. */
    public static SocketFactory connecting(Path path) {
        return new Connecting(UnixDomainSocketAddress.of(path));
    }

    private static final class Listening extends ServerSocketFactory {
        private final UnixDomainSocketAddress address;

        Listening(UnixDomainSocketAddress address) {
            this.address = address;
        }

        @Override
        public ServerSocket createServerSocket() throws IOException {
            return new Listener(address);
        }

        @Override
        public ServerSocket createServerSocket(int port) throws IOException {
            return createServerSocket();
        }

        @Override
        public ServerSocket createServerSocket(int port, int backlog) throws IOException {
            return createServerSocket();
        }

        @Override
        public ServerSocket createServerSocket(int port, int backlog, InetAddress host) throws IOException {
            return createServerSocket();
        }
    }

    /** Never touches the inherited implementation, which would make an Internet socket. */
    private static final class Listener extends ServerSocket {
        private final UnixDomainSocketAddress address;
        private final ServerSocketChannel channel;

        Listener(UnixDomainSocketAddress address) throws IOException {
            this.address = address;
            this.channel = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        }

        @Override
        public void bind(SocketAddress ignored) throws IOException {
            channel.bind(address);
        }

        @Override
        public Socket accept() throws IOException {
            return new UnixSocket(channel.accept());
        }

        @Override
        public SocketAddress getLocalSocketAddress() {
            return address;
        }

        @Override
        public boolean isClosed() {
            return !channel.isOpen();
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }

    private static final class Connecting extends SocketFactory {
        private final UnixDomainSocketAddress address;

        Connecting(UnixDomainSocketAddress address) {
            this.address = address;
        }

        @Override
        public Socket createSocket() throws IOException {
            return new UnixSocket(SocketChannel.open(address));
        }

        @Override
        public Socket createSocket(String host, int port) throws IOException {
            return createSocket();
        }

        @Override
        public Socket createSocket(String host, int port, InetAddress local, int localPort) throws IOException {
            return createSocket();
        }

        @Override
        public Socket createSocket(InetAddress host, int port) throws IOException {
            return createSocket();
        }

        @Override
        public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) throws IOException {
            return createSocket();
        }
    }
}
