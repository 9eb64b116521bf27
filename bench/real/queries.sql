-- What SQLite's own speed test does, in small: fill, index, join, group, update, delete.
PRAGMA cache_size = -200000;
CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
INSERT INTO t SELECT i, (i * 7919) % 1000003, printf('%d row %x', i, i * 2654435761) FROM n;
CREATE INDEX tb ON t(b);
CREATE INDEX tc ON t(c);
SELECT count(*), avg(b) FROM t WHERE b BETWEEN 1000 AND 500000;
SELECT count(*) FROM t x JOIN t y ON x.b = y.a;
SELECT substr(c, 1, 2), count(*), sum(b) FROM t GROUP BY 1 ORDER BY 2 DESC LIMIT 5;
SELECT c FROM t ORDER BY c || b LIMIT 3;
UPDATE t SET b = b + 1 WHERE a % 3 = 0;
DELETE FROM t WHERE a % 5 = 0;
SELECT count(*), sum(b) FROM t;
