#define EXPORT_SYMBOL_GPL(symbol)
