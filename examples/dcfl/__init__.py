"""The study of DCFL's figures and tables: images, a schedule of clients and drift, and what is measured."""
