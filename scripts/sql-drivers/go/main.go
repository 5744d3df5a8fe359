// Tests an SQL server with the two PostgreSQL drivers of Go: pgx and lib/pq. test-sql-drivers.sh calls it and passes the address.
//
// Each case is a function with the expectation as its name. Cases share only the server.
package main

import (
	"context"
	"crypto/md5"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lib/pq"
)

// url is the address of the server, with user and password.
var url string

func with(options string) string { return url + "?sslmode=disable" + options }

func pgxDescribesACastParameterAsTheTypeOfTheCast(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, with(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	described, err := conn.Prepare(ctx, "", "select $1::int")
	if err != nil {
		return err
	}
	if len(described.ParamOIDs) != 1 || described.ParamOIDs[0] != pgtype.Int4OID {
		return fmt.Errorf("the parameter is of types %v, not int4 (%d)", described.ParamOIDs, pgtype.Int4OID)
	}
	var back int32
	if err := conn.QueryRow(ctx, "select $1::int", 42).Scan(&back); err != nil || back != 42 {
		return fmt.Errorf("%d, %v", back, err)
	}
	return nil
}

func pgxCopiesRowsInBinaryAndAllOfThemArrive(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, with(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "create table go_copied (id bigint primary key, note text)"); err != nil {
		return err
	}
	// Rows of all lengths up to some thousand bytes, so that messages of COPY end anywhere in a row.
	const rows = 20000
	sum := md5.New()
	note := func(row int) string { return strings.Repeat("x", (row*37)%3001) + fmt.Sprint(row) }
	for row := range rows {
		sum.Write([]byte(note(row)))
	}
	next := func(row int) ([]any, error) { return []any{int64(row), note(row)}, nil }
	copied, err := conn.CopyFrom(ctx, pgx.Identifier{"go_copied"}, []string{"id", "note"}, pgx.CopyFromSlice(rows, next))
	if err != nil || copied != rows {
		return fmt.Errorf("%d of %d rows: %v", copied, rows, err)
	}
	found, err := conn.Query(ctx, "select note from go_copied order by id")
	if err != nil {
		return err
	}
	back := md5.New()
	var one string
	if _, err := pgx.ForEachRow(found, []any{&one}, func() error { _, err := back.Write([]byte(one)); return err }); err != nil {
		return err
	}
	if sent, got := hex.EncodeToString(sum.Sum(nil)), hex.EncodeToString(back.Sum(nil)); sent != got {
		return fmt.Errorf("sent %s, found %s", sent, got)
	}
	return nil
}

func pgxKeepsAPoolThatManyUse(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, with("&pool_max_conns=8"))
	if err != nil {
		return err
	}
	defer pool.Close()
	var all sync.WaitGroup
	wrong := make(chan error, 32)
	for worker := range 32 {
		all.Add(1)
		go func() {
			defer all.Done()
			for turn := range 25 {
				var back int64
				err := pool.QueryRow(ctx, "select $1::bigint + 1", worker*100+turn).Scan(&back)
				if err != nil || back != int64(worker*100+turn+1) {
					wrong <- fmt.Errorf("worker %d: %d, %v", worker, back, err)
					return
				}
			}
		}()
	}
	all.Wait()
	close(wrong)
	return <-wrong
}

func bothTakeAStatementTimeoutAsAnOptionOfTheConnection(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, with("&statement_timeout=7000"))
	if err != nil {
		return fmt.Errorf("pgx: %w", err)
	}
	defer conn.Close(ctx)
	db, err := sql.Open("postgres", with("&statement_timeout=7000"))
	if err != nil {
		return err
	}
	defer db.Close()
	for name, show := range map[string]func(*string) error{
		"pgx":    func(shown *string) error { return conn.QueryRow(ctx, "show statement_timeout").Scan(shown) },
		"lib/pq": func(shown *string) error { return db.QueryRowContext(ctx, "show statement_timeout").Scan(shown) },
	} {
		var shown string
		if err := show(&shown); err != nil || shown != "7s" {
			return fmt.Errorf("%s: statement_timeout is %q, not 7s: %v", name, shown, err)
		}
	}
	return nil
}

func libpqInsertsReadsAndCopies(ctx context.Context) error {
	db, err := sql.Open("postgres", with(""))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "create table go_pq (id integer primary key, note text, at timestamp)"); err != nil {
		return err
	}
	at := time.Date(2024, 2, 29, 12, 0, 0, 123456000, time.UTC)
	if _, err := db.ExecContext(ctx, "insert into go_pq values ($1, $2, $3)", 1, "a\tb\\", at); err != nil {
		return err
	}
	change, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	copying, err := change.PrepareContext(ctx, pq.CopyIn("go_pq", "id", "note", "at"))
	if err != nil {
		return err
	}
	for id := 2; id <= 5000; id++ {
		if _, err := copying.ExecContext(ctx, id, fmt.Sprintf("note %d\n", id), at); err != nil {
			return err
		}
	}
	if _, err := copying.ExecContext(ctx); err != nil {
		return err
	}
	if err := copying.Close(); err != nil {
		return err
	}
	if err := change.Commit(); err != nil {
		return err
	}
	var rows int
	var note string
	var back time.Time
	if err := db.QueryRowContext(ctx, "select count(*) from go_pq").Scan(&rows); err != nil || rows != 5000 {
		return fmt.Errorf("%d rows: %v", rows, err)
	}
	if err := db.QueryRowContext(ctx, "select note, at from go_pq where id = $1", 1).Scan(&note, &back); err != nil {
		return err
	}
	if note != "a\tb\\" || !back.Equal(at) {
		return fmt.Errorf("%q at %v", note, back)
	}
	return nil
}

func main() {
	url = os.Args[1]
	passed, failed := 0, 0
	for _, one := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"pgx describes a cast parameter as the type of the cast", pgxDescribesACastParameterAsTheTypeOfTheCast},
		{"pgx copies rows in binary and all of them arrive", pgxCopiesRowsInBinaryAndAllOfThemArrive},
		{"pgx keeps a pool that many use", pgxKeepsAPoolThatManyUse},
		{"lib/pq inserts, reads and copies", libpqInsertsReadsAndCopies},
		{"both take a statement timeout as an option of the connection", bothTakeAStatementTimeoutAsAnOptionOfTheConnection},
	} {
		ctx, done := context.WithTimeout(context.Background(), 2*time.Minute)
		if err := one.run(ctx); err != nil {
			failed++
			fmt.Printf("FAILED go: %s: %v\n", one.name, err)
		} else {
			passed++
			fmt.Printf("ok go: %s\n", one.name)
		}
		done()
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
