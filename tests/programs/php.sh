# about: plugins (gd, sqlite3, xml, mbstring, intl), large strings and arrays, children
# version: php --version | head -n 1
# needs: php
set -e
turns=3
[ "$SCALE" = short ] || turns=100
php -m | grep -xE 'gd|sqlite3|xml|mbstring|intl|pcntl' | sort
cat >work.php <<'PHP'
<?php
ini_set('memory_limit', '-1');
mt_srand(7);
$turns = (int)$argv[1];
for ($turn = 0; $turn < $turns; $turn++) {
    $text = str_repeat("a line of text, ünïcödé\n", 200000);
    echo md5(mb_strtoupper($text)), ' ', md5(gzcompress($text)), ' ', strlen(serialize(range(1, 300000))), "\n";
    $numbers = array_map(fn($n) => $n * 7919 % 100003, range(1, 400000));
    sort($numbers);
    echo md5(implode(',', $numbers)), "\n";
    $image = imagecreatetruecolor(1500, 1000);
    for ($n = 0; $n < 300; $n++)
        imagefilledellipse($image, mt_rand(0, 1499), mt_rand(0, 999), mt_rand(1, 300), mt_rand(1, 300), mt_rand(0, 0xffffff));
    $small = imagescale($image, 700, 500);
    ob_start(); imagepng($small); $png = ob_get_clean();
    echo md5($png), ' ', imagesx(imagecreatefromstring($png)), "\n";
    $base = new SQLite3(':memory:');
    $base->exec('create table t (n integer, text text)');
    $insert = $base->prepare('insert into t values (?, ?)');
    for ($n = 0; $n < 20000; $n++) {
        $insert->bindValue(1, $n); $insert->bindValue(2, str_repeat("$n", 20)); $insert->execute();
    }
    echo $base->querySingle('select sum(n) || "/" || sum(length(text)) from t'), ' ';
    echo strlen($base->querySingle('select zeroblob(5000000)')), "\n";
    $xml = new DOMDocument();
    $root = $xml->appendChild($xml->createElement('root'));
    for ($n = 0; $n < 20000; $n++) $root->appendChild($xml->createElement('item', "text $n"));
    echo md5($xml->saveXML()), ' ', simplexml_import_dom($xml)->item[777], "\n";
    echo collator_compare(collator_create('de_DE'), 'ä', 'z'), ' ', normalizer_normalize("a\u{308}") === 'ä' ? 'nfc' : '?', "\n";
    if (function_exists('pcntl_fork')) {
        $child = pcntl_fork();
        if ($child === 0) { $more = str_repeat('x', 30000000); exit(strlen($more) === 30000000 && md5($text) ? 0 : 1); }
        pcntl_waitpid($child, $status);
        echo 'child ', pcntl_wexitstatus($status), "\n";
    }
}
PHP
php work.php "$turns"
