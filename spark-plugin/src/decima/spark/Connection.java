package decima.spark;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/**
 * Lines over TCP ({@code HOST:PORT}) or a Unix socket ({@code unix:/path}, from Java 16). A caller that must not block for
 * ever lets another thread close the connection, which ends any pending read or write.
 */
final class Connection implements Closeable {
  /** Maximum length of a line, bytes, its end included. */
  static final int LONGEST_LINE = 4 << 20;

  private final SocketChannel channel;
  private ByteBuffer read = ByteBuffer.allocate(1 << 14);
  private int searched;

  private Connection(SocketChannel channel) {
    this.channel = channel;
    read.flip();
  }

  /** Refuses an invalid address before connecting. */
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

  void write(byte[] line) throws IOException {
    for (ByteBuffer left = ByteBuffer.wrap(line); left.hasRemaining(); ) {
      channel.write(left);
    }
  }

  /** The next line, without its end. */
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

  /** Fails if the other side has closed the connection; does not block. */
  void check() throws IOException {
    channel.configureBlocking(false);
    try {
      if (channel.read(ByteBuffer.allocate(1)) != 0) {
        throw new EOFException("the policy closed the connection, or speaks without being asked");
      }
    } finally {
      channel.configureBlocking(true);
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
    int count = channel.read(read);
    read.flip();
    if (count < 0) {
      throw new EOFException("the policy closed the connection");
    }
  }

  @Override public void close() throws IOException {
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

  /** By reflection, since this is compiled for Java 8. */
  private static SocketAddress unix(String path) throws IOException {
    try {
      Class<?> type = Class.forName("java.net.UnixDomainSocketAddress");
      return (SocketAddress) type.getMethod("of", String.class).invoke(null, path);
    } catch (ReflectiveOperationException e) {
      throw new IOException("unix: needs Java 16 or later", e);
    }
  }
}
