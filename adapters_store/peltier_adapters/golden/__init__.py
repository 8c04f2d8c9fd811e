"""Whether a backbone computes an adapter's golden examples as its training did."""
