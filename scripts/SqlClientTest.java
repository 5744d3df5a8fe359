import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.Properties;

/** PostgreSQL's JDBC driver against an SQL server: one pass over what programs use. Called by test-sql-clients.sh --jdbc. */
public final class SqlClientTest {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("user", "ann");
        settings.setProperty("password", "s3cret");
        try (Connection connection = DriverManager.getConnection(words[0], settings)) {
            try (Statement statement = connection.createStatement()) {
                statement.execute("create table jdbc_rows (id integer primary key, note text, at timestamp)");
            }
            connection.setAutoCommit(false);
            try (PreparedStatement insert = connection.prepareStatement("insert into jdbc_rows values (?, ?, ?)")) {
                for (int id = 0; id < 100; id++) {
                    insert.setInt(1, id);
                    insert.setString(2, id % 2 == 0 ? null : "note " + id);
                    insert.setTimestamp(3, Timestamp.valueOf("2024-02-29 12:00:00.5"));
                    insert.addBatch();
                }
                check(insert.executeBatch().length == 100, "a batch");
            }
            connection.commit();
            try (PreparedStatement select = connection.prepareStatement("select id, note from jdbc_rows where id >= ? order by id")) {
                select.setFetchSize(7);
                for (int turn = 0; turn < 10; turn++) {
                    select.setInt(1, 10);
                    int expected = 10;
                    try (ResultSet rows = select.executeQuery()) {
                        while (rows.next()) {
                            check(rows.getInt(1) == expected, "row " + expected);
                            check((rows.getString(2) == null) == (expected % 2 == 0), "note " + expected);
                            expected++;
                        }
                    }
                    check(expected == 100, "all rows, fetched seven at a time");
                }
            }
            try (Statement statement = connection.createStatement()) {
                statement.execute("select 1/0");
                check(false, "division by zero");
            } catch (SQLException error) {
                check("22012".equals(error.getSQLState()), "SQLSTATE " + error.getSQLState());
            }
            connection.rollback();
            DatabaseMetaData about = connection.getMetaData();
            check("PostgreSQL".equals(about.getDatabaseProductName()), "the product's name");
        }
        System.out.println("1 passed, 0 failed");
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            System.out.println("FAILED " + what + "\n0 passed, 1 failed");
            System.exit(1);
        }
    }
}
