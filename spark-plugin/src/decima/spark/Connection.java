package decima.spark;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * Sends and receives lines over TCP ({@code HOST:PORT}), with or without TLS, or a Unix socket ({@code unix:/path}, from Java 16). If a caller must
 * not block forever, another thread closes the connection, which ends a pending read or write.
 */
final class Connection implements Closeable {
  /** Maximum length of a line, bytes, including its end. */
  static final int LONGEST_LINE = 4 << 20;

  private final SocketChannel channel;
  /** Socket with TLS, for reads and writes; null without TLS. The channel is closed instead, as this socket's close may block. */
  private SSLSocket tls;
  private volatile boolean closed;
  private ByteBuffer read = ByteBuffer.allocate(1 << 14);
  private int searched;

  private Connection(SocketChannel channel) {
    this.channel = channel;
    read.flip();
  }

  /** Throws IllegalArgumentException if the address is invalid, before any connection. */
  static void checkAddress(String address) {
    if (!address.startsWith("unix:")) {
      tcp(address);
    } else if (address.length() == "unix:".length()) {
      throw new IllegalArgumentException("spark.decima.address is unix: without a path");
    }
  }

  static Connection open(String address) throws IOException {
    SocketChannel channel;
    if (address.startsWith("unix:")) {
      channel = SocketChannel.open(unix(address.substring("unix:".length())));
    } else {
      InetSocketAddress where = tcp(address);
      channel = SocketChannel.open();
      try {
        channel.socket().connect(new InetSocketAddress(where.getHostString(), where.getPort()), 1000);
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      } catch (IOException | RuntimeException e) {
        channel.close();
        throw e;
      }
    }
    return new Connection(channel);
  }

  /** Establishes TLS, and verifies the certificate and its host name. */
  void secure(SSLSocketFactory factory, String address) throws IOException {
    InetSocketAddress where = tcp(address);
    try {
      tls = (SSLSocket) factory.createSocket(channel.socket(), where.getHostString(), where.getPort(), true);
      SSLParameters parameters = tls.getSSLParameters();
      parameters.setEndpointIdentificationAlgorithm("HTTPS");
      tls.setSSLParameters(parameters);
      tls.startHandshake();
    } catch (IOException e) {
      if (closed) {
        throw new ClosedChannelException();
      }
      Throwable cause = e;
      while (cause.getCause() != null) {
        cause = cause.getCause();
      }
      throw new IOException("no TLS: " + cause.getMessage(), e);
    }
  }

  void write(byte[] line) throws IOException {
    if (tls != null) {
      try {
        tls.getOutputStream().write(line);
      } catch (IOException e) {
        throw closedOr(e);
      }
      return;
    }
    for (ByteBuffer left = ByteBuffer.wrap(line); left.hasRemaining(); ) {
      channel.write(left);
    }
  }

  /** Returns the next line, without its end. */
  String line() throws IOException {
    while (true) {
      for (; searched < read.limit(); searched++) {
        if (read.get(searched) == '\n') {
          byte[] line = new byte[searched - read.position()];
          read.get(line).get();
          searched = read.position();
          return new String(line, StandardCharsets.UTF_8);
        }
      }
      more();
    }
  }

  /** Throws an exception if the other side has closed the connection. Does not block. */
  void check() throws IOException {
    if (tls != null) {
      checkTls();
      return;
    }
    channel.configureBlocking(false);
    try {
      if (channel.read(ByteBuffer.allocate(1)) != 0) {
        throw new EOFException("the policy closed the connection, or speaks without being asked");
      }
    } finally {
      channel.configureBlocking(true);
    }
  }

  private void checkTls() throws IOException {
    try {
      tls.setSoTimeout(1);
      try {
        tls.getInputStream().read();
      } catch (SocketTimeoutException e) {
        tls.setSoTimeout(0);
        return;
      }
    } catch (IOException e) {
      throw closedOr(e);
    }
    throw new EOFException("the policy closed the connection, or speaks without being asked");
  }

  /** Errors of sockets do not show whether this side or the other side has closed the connection. */
  private IOException closedOr(IOException error) {
    return closed ? new ClosedChannelException() : error;
  }

  private int receive() throws IOException {
    if (tls == null) {
      return channel.read(read);
    }
    try {
      int count = tls.getInputStream().read(read.array(), read.position(), read.remaining());
      read.position(read.position() + Math.max(count, 0));
      return count;
    } catch (IOException e) {
      throw closedOr(e);
    }
  }

  private void more() throws IOException {
    searched -= read.position();
    if (searched >= LONGEST_LINE) {
      throw new IOException("the policy sent a line longer than " + LONGEST_LINE + " bytes");
    }
    if (read.remaining() == read.capacity()) {
      read = ByteBuffer.allocate(2 * read.capacity()).put(read);
    } else {
      read.compact();
    }
    int count = receive();
    read.flip();
    if (count < 0) {
      throw new EOFException("the policy closed the connection");
    }
  }

  @Override public void close() throws IOException {
    closed = true;
    channel.close();
  }

  private static InetSocketAddress tcp(String address) {
    int colon = address.lastIndexOf(':');
    try {
      int port = Integer.parseInt(address.substring(colon + 1));
      return InetSocketAddress.createUnresolved(address.substring(0, colon), port);
    } catch (RuntimeException e) {
      throw new IllegalArgumentException("spark.decima.address is '" + address + "', but must be HOST:PORT");
    }
  }

  /** Uses reflection, since the plugin is compiled for Java 8. */
  private static SocketAddress unix(String path) throws IOException {
    try {
      Class<?> type = Class.forName("java.net.UnixDomainSocketAddress");
      return (SocketAddress) type.getMethod("of", String.class).invoke(null, path);
    } catch (ReflectiveOperationException e) {
      throw new IOException("unix: needs Java 16 or later", e);
    }
  }
}
